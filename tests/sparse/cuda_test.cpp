// The CUDA text of every operator is one that NVRTC takes. Where there is none, that is skipped, and the summary says
// so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/build.h"
#include "jit/nvrtc/toolchain.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/long_rows.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
#include "tests/sparse/extent_cases.h"
#include "tests/sparse/ready_programs.h"
#include "tests/sparse/refusals.h"
#include "tests/support/cubins.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::test {
namespace {

class Cuda : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
};

std::string without(std::string text, std::string_view word) {
  for (size_t at = 0; (at = text.find(word, at)) != text.npos;) text.erase(at, word.size());
  return text;
}

// One text of all, a namespace each: what a compilation takes before its first kernel is half of a text's time. Lines
// of errors have the operator's name.
void expect_compiles(const std::vector<ReadyCase>& cases, std::string_view architecture) {
  std::string text;
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, const Operator& op) {
    names.push_back("op" + std::to_string(names.size()) + "_");
    text += "namespace " + names.back() + " {\n#line 1 \"" + name + "\"\n" + without(op.text("cuda"), "extern \"C\" ") +
            "}\n";
  };
  for (const ReadyCase& c : cases)
    add(c.name,
        compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"}));
  for (const int64_t feat : {12, 128}) {
    const LongRowsForm all{feat, DType::fp32, true, true};
    const std::pair<const char*, ReadyProgram> programs[] = {
        {"row groups", row_groups_program({feat}, false)},
        {"row groups beside huge rows", row_groups_program({feat, DType::bf16}, true)},
        {"row groups in another order", row_groups_program(all, true)},
        {"huge rows", huge_rows_program(all)}};
    for (const auto& [name, ready] : programs)
      add(name,
          compile(parse(ready.text), ready.schedule, Device::cpu(), {.set = ready.set, .stop_after = "generate"}));
  }
  add("named as words", compile(parse(kNamedAsWords), Device::cpu(), {.stop_after = "generate"}));
  if (weft::testing::kUnderSanitizer) return;  // they watch who makes the texts, and not the compiler
  weft::testing::count_cubin();
  const auto built = jit::build({.name = "sparse operators", .text = text, .target = jit::nvrtc_target(architecture)});
  for (const std::string& name : names) EXPECT_NE(built.bytes.find(name), std::string::npos) << name;
}

TEST_P(Cuda, TextOfEveryOperatorCompiles) {
  std::vector<ReadyCase> cases = all_cases();
  for (ReadyCase& c : ready_cases(vector_unit(Device::cuda()))) {
    c.name += " of cards";
    if (GetParam() == "sm_90a") cases.push_back(std::move(c));
  }
  for (ReadyCase& c : mma_cases()) cases.push_back(std::move(c));
  expect_compiles(cases, GetParam());
}

// Loops of one iteration; of none there is nothing to run.
TEST_P(Cuda, TextOfOneFeatureCompiles) {
  if (GetParam() == "sm_80") expect_compiles(extent_cases(1), GetParam());
}

constexpr std::string_view kArchitectures[] = {"sm_80", "sm_90a"};
INSTANTIATE_TEST_SUITE_P(Architecture, Cuda,
                         ::testing::ValuesIn(std::span(kArchitectures).first(weft::testing::kUnderSanitizer ? 1 : 2)),
                         [](const auto& architecture) { return std::string(architecture.param); });

std::string cuda_of(const char* program, const std::string& schedule, const std::map<std::string, int64_t>& set) {
  return compile(parse(program), "lower()\n" + schedule, Device::cpu(), {.set = set, .stop_after = "generate"})
      .text("cuda");
}

TEST(CudaText, HasTheCopiesOfValuesThatFormatsTake) {
  const std::string code =
      compile(parse(kSpmmProgram), "decompose_format(csrmm, A, ell(4))\n", Device::cpu(), {.stop_after = "generate"})
          .text("cuda");
  EXPECT_NE(code.find("void weft_spmm_preprocess_0("), code.npos);
  EXPECT_NE(code.find("void weft_spmm_0("), code.npos);
}

// A product in memory of the CTA is shared by its threads; one in registers is each thread's own.
TEST(CudaText, HasProductsOfTheCtaAndOfAThread) {
  constexpr const char* kProgram = R"(program tiles(t):
  T = dense_fixed(t)
  I = dense_fixed(4)
  J = dense_fixed(8)
  L = dense_fixed(6)
  A = buffer(T, I, L): fp32
  B = buffer(L, J): fp32
  C = buffer(T, I, J): fp32
  iterate product(T, I, J, L) "SSSR" as (t0, i, j, l):
    init:
      C[t0, i, j] = 0.0
    C[t0, i, j] = C[t0, i, j] + A[t0, i, l] * B[l, j]
)";
  const std::string product = "decompose_reduction(product.i)\ntensorize(product.i, product)\n";
  const struct {
    std::string schedule, has;
  } cases[] = {
      {"bind(product.t0, blockIdx.x)\n" + product,
       "C + (long long)t0 * 32, 8, A + (long long)t0 * 24, 6, 1, B + 0, 8, weft_thread(), weft_threads());"},
      {"cache_write(product.t0, shared)\nbind(product.t0, blockIdx.x)\n" + product,
       "C_local + 0, 8, A + (long long)t0 * 24, 6, 1, B + 0, 8, weft_thread(), weft_threads());"},
      {"cache_write(product.t0, register)\nbind(product.t0, threadIdx.x)\n" + product,
       "C_local + 0, 8, A + (long long)t0 * 24, 6, 1, B + 0, 8, 0, 1);"},
      {"bind(product.t0, threadIdx.x)\n" + product,
       "C + (long long)t0 * 32, 8, A + (long long)t0 * 24, 6, 1, B + 0, 8, 0, 1);"},
      {"parallel(product.t0)\n" + product, "C + (long long)t0 * 32, 8, A + (long long)t0 * 24, 6, 1, B + 0, 8, 0, 1);"},
      {"bind(product.t0, threadIdx.y)\n" + product, "if (int(threadIdx.x) == 0) {"},
  };
  for (const auto& c : cases) {
    const std::string code = cuda_of(kProgram, c.schedule, {});
    const std::string kernel = code.substr(code.find("extern \"C\""));
    EXPECT_NE(kernel.find("weft_product<4, 8, 6>("), kernel.npos) << c.schedule << kernel;
    EXPECT_NE(kernel.find(c.has), kernel.npos) << c.schedule << kernel;
  }
}

// A sum over many axes, each within the other: what threads run is found in one pass, however deep.
TEST(CudaText, IsMadeOfProgramsOfManyAxes) {
  for (const auto& [num_axes, length] : {std::pair(14, "n"), {40, "2"}}) {
    std::string axes, all, letters, names;
    for (int a = 0; a < num_axes; ++a) {
      axes += fmt::format("  I{} = dense_fixed({})\n", a, length);
      all += fmt::format("{}I{}", a == 0 ? "" : ", ", a);
      names += fmt::format("{}i{}", a == 0 ? "" : ", ", a);
      letters += a == 0 ? "S" : "R";
    }
    const std::string iterate =
        fmt::format("  iterate deep({}) \"{}\" as ({}):\n    init:\n      Y[i0] = 0.0\n    Y[i0] = Y[i0] + A[{}]\n",
                    all, letters, names, names);
    const std::string program =
        "program deep(n):\n" + axes + "  A = buffer(" + all + "): fp32\n  Y = buffer(I0): fp32\n" + iterate;
    const std::string code = cuda_of(program.c_str(), "ao, ai = split(deep.i0, 2)\n", {});
    EXPECT_NE(code.find("if (int(threadIdx.x) == 0) {"), code.npos) << code;
  }
}

// Every list of formats has a schedule for cards; of those whose parts have no row in common, rows of all are one
// kernel.
TEST(CudaText, HasRowsOfEveryFormat) {
  const struct {
    const char* formats;
    int kernels;  // behind the copies of values: init, and what follows each other
  } cases[] = {{"hyb(1, 3)", 2},     {"hyb(2, 1)", 3}, {"ell(2), csr()", 3}, {"dcsr()", 2},
               {"bsr(2), coo()", 3}, {"dia()", 2},     {"sr_bcrs(4, 2)", 2}, {"csc()", 2}};
  for (const auto& c : cases) {
    const std::string code =
        compile(parse(kSpmmProgram), spmm_formats_schedule(16, parse_formats(c.formats), vector_unit(Device::cuda())),
                Device::cpu(), {.set = {{"feat", 16}}, .stop_after = "generate"})
            .text("cuda");
    int kernels = 0;
    for (size_t at = 0; (at = code.find("void weft_spmm_", at)) != code.npos; ++at)
      kernels += code.compare(at, 26, "void weft_spmm_preprocess_") != 0;
    EXPECT_EQ(kernels, c.kernels) << c.formats;
    // Blocks, which have rows within, share block rows as they are.
    EXPECT_EQ(code.find("csrmm_bsr_2_ro"), code.npos) << c.formats;
  }
}

// Nests that meet in nothing are one kernel, each with CTAs of its own; in one order, whose threads lie alike.
TEST(CudaText, HasNestsSideBySide) {
  constexpr const char* kProgram = R"(program beside(m, n, most):
  I = dense_fixed(m)
  J = dense_fixed(n)
  O = dense_fixed(1)
  R = dense_variable(O, most, m, indptr=r_indptr)
  X = buffer(I): fp32
  Y = buffer(I): fp32
  Z = buffer(J): fp32
  Out = buffer(I): fp32
  V = buffer(O, R): fp32
  iterate twice(I) "S" as (i):
    Y[i] = X[i] * 2.0
  iterate ones(J) "S" as (j):
    Z[j] = 1.0
  iterate more(I) "S" as (x):
    Out[x] = X[x] + LAST
  iterate last(O, R) "SS" as (o, r):
    V[o, r] = 1.0
)";
  const auto shared = [](const std::string& loop, int threads, const char* cta = "blockIdx.x") {
    const std::string name = loop.substr(0, loop.find('.'));
    return fmt::format("{0}_o, {0}_i = split({1}, {2})\nbind({0}_o, {3})\nbind({0}_i, threadIdx.x)\n", name, loop,
                       threads, cta);
  };
  const auto kernels = [&](const std::string& schedule, const char* read = "Z[0]") {
    std::string program = kProgram;
    program.replace(program.find("LAST"), 4, read);
    const std::string code = cuda_of(program.c_str(), schedule, {});
    std::vector<std::string> found;
    for (size_t at = code.find("extern \"C\""), next = 0; at != code.npos; at = next) {
      next = code.find("extern \"C\"", at + 1);
      found.push_back(code.substr(at, next == code.npos ? next : next - at));
    }
    return found;
  };
  const std::string twice = shared("twice.i", 32), ones = shared("ones.j", 32), more = shared("more.x", 32);
  const std::string last = shared("last.r", 32);
  // `more` reads what `ones` writes; the CTAs of `last` are as many as the kernel finds.
  const std::vector<std::string> two = kernels(twice + ones + more + last);
  ASSERT_EQ(two.size(), 3u);
  EXPECT_NE(two[0].find("weft_beside < (weft_quotient(m + 31, 32) + weft_quotient(n + 31, 32))"), two[0].npos)
      << two[0];
  EXPECT_NE(two[0].find("const int ones_o = weft_beside - "), two[0].npos) << two[0];
  EXPECT_EQ(kernels(twice + ones + more + last, "1.0").size(), 2u);  // three, and `last`
  EXPECT_EQ(kernels(twice + shared("ones.j", 64) + more + last, "1.0").size(), 4u);
  EXPECT_EQ(kernels(twice + shared("ones.j", 32, "blockIdx.y") + more + last, "1.0").size(), 4u);
  EXPECT_EQ(kernels(twice + "bind(ones.j, threadIdx.x)\n" + more + last, "1.0").size(), 4u);
  EXPECT_EQ(kernels(twice + "parallel(ones.j)\n" + more + last, "1.0").size(), 4u);
}

TEST(CudaText, RefusesWhatThreadsWouldDoWrong) {
  const struct {
    const char* program;
    const char* schedule;
    const char* says;
  } kRefused[] = {
      // Sums of its threads, in registers that another would have to read.
      {kSddmmProgram,
       "rfactor(sddmm.k, register)\nbind(sddmm.i, blockIdx.x)\nbind(sddmm.k, threadIdx.x)\nbind(sddmm_zero.k, "
       "threadIdx.x)\n",
       "line 2: sddmm: 'O_partial' lies in registers around loop 'k'"},
      // Memory of the CTA for each of its threads.
      {kSddmmProgram, "cache_read(sddmm.j, X, shared)\nbind(sddmm.i, blockIdx.x)\nbind(sddmm.j, threadIdx.x)\n",
       "line 2: sddmm: 'X_local' is in shared memory within loop 'j', which threads share"},
      {kSddmmProgram, "cache_read(sddmm.i, X, shared)\nparallel(sddmm.i)\n",
       "line 2: sddmm: 'X_local' is in shared memory within a parallel loop"},
  };
  for (const auto& r : kRefused)
    expect_contains(refusal([&] { cuda_of(r.program, r.schedule, {{"feat", 64}}); }), r.says, r.schedule);
}

}  // namespace
}  // namespace weft::sparse::test
