// Random lists of formats, decomposed once or in turn, for random expressions over a matrix: what is accepted computes
// what the program says, by the interpreter. A failure prints its seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/sparse/ready_programs.h"
#include "tests/sparse/support.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

constexpr const char* kProgram = R"(program random_formats(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  K = dense_fixed(2)
  X = buffer(I, J): fp32
  W = buffer(I, J): fp32
  B = buffer(N, K): fp32
  D = buffer(I, N): fp32
  Y = buffer(I, J): fp32
  C = buffer(I, K): fp32
)";

constexpr const char* kFormats[] = {"csr()",     "csc()",         "coo()",         "dcsr()",    "dia()",
                                    "ell(1)",    "ell(3)",        "bsr(1)",        "bsr(2)",    "bsr(3)",
                                    "dbsr(2)",   "sr_bcrs(1, 2)", "sr_bcrs(2, 1)", "hyb(1, 0)", "hyb(1, 2)",
                                    "hyb(2, 1)", "sr_bcrs(3, 2)"};

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  template <class List>
  std::string one_of(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

  // Over one element of the matrix; often, but not always, 0 where X is.
  std::string expression(int depth) {
    constexpr const char* kLeaves[] = {"X[i, j]", "X[i, j]", "W[i, j]", "2.0", "real(i)", "real(j)"};
    if (depth == 0) return one_of(kLeaves);
    const std::string a = expression(depth - 1), b = expression(depth - 1);
    switch (below(6)) {
      case 0: return fmt::format("({} + {})", a, b);
      case 1: return fmt::format("({} - {})", a, b);
      case 2: return fmt::format("abs({})", a);
      case 3: return fmt::format("select({} > 0.25, {}, 0.0)", a, b);
      default: return fmt::format("({} * {})", a, b);
    }
  }

  std::string iteration() {
    const std::string x = expression(static_cast<int>(below(3)));
    constexpr const char* kWhere[] = {"", "", "", " where j >= 2", " where X[i, j] > 0.0"};
    const std::string where = one_of(kWhere);
    switch (below(5)) {
      case 0: return fmt::format("  iterate it(I, J) \"SS\" as (i, j){}:\n    Y[i, j] = {}\n", where, x);
      case 1: return fmt::format("  iterate it(I, J) \"SS\" as (i, j){}:\n    Y[i, j] = Y[i, j] + {}\n", where, x);
      case 2: return fmt::format("  iterate it(I, J) \"SS\" as (i, j){}:\n    D[i, j] = {}\n", where, x);
      case 3:
        return fmt::format(
            "  iterate it(I, J, K) \"SSR\" as (i, j, k){}:\n    init:\n      Y[i, j] = {}\n"
            "    Y[i, j] = Y[i, j] + {} * B[j, k]\n",
            where, below(3) == 0 ? "1.0" : "0.0", x);
      default:
        return fmt::format(
            "  iterate it(I, J, K) \"SRS\" as (i, j, k){}:\n    init:\n      C[i, k] = 0.5\n"
            "    C[i, k] = C[i, k] + {} * B[j, k]\n",
            where, x);
    }
  }

  std::string formats() {
    std::string list;
    for (int64_t f = below(3); f > 0; --f) list += one_of(kFormats) + ", ";
    return list + (below(2) == 0 ? "csr()" : "coo()");
  }

  std::string schedule() {
    constexpr const char* kBuffers[] = {"X", "X", "X", "W", "Y"};
    const std::string buffer = one_of(kBuffers);
    std::string text = fmt::format("decompose_format(it, {}, {})\n", buffer, formats());
    if (below(3) == 0) text += fmt::format("decompose_format(it_csr, {}_csr, {})\n", buffer, formats());
    return text;
  }

 private:
  std::mt19937 random_;
};

// Other cases: WEFT_RANDOM_FIRST=20261250 WEFT_RANDOM_CASES=1 runs one.
uint32_t number_in_environment(const char* name, uint32_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<uint32_t>(std::strtoul(text, nullptr, 10));
}

TEST(RandomFormats, ComputeWhatTheProgramSays) {
  const uint32_t first = number_in_environment("WEFT_RANDOM_FIRST", 20261127);
  const uint32_t cases = number_in_environment("WEFT_RANDOM_CASES", testing::kUnderSanitizer ? 60 : 600);
  uint32_t accepted = 0;
  for (uint32_t seed = first; seed < first + cases; ++seed) {
    RandomText random(seed);
    const std::string text = kProgram + random.iteration(), schedule = random.schedule();
    const std::string what = fmt::format("seed {}\n{}{}", seed, text, schedule);
    std::optional<Operator> op;
    try {
      op = compile(parse(text), schedule, Device::cpu(), {.stop_after = "generate"});
    } catch (const Error&) {
      continue;  // refused
    } catch (const std::exception& error) {
      FAIL() << what << error.what();
    }
    ++accepted;
    const Matrix a = random_matrix(kShapes[seed % std::size(kShapes)], seed);
    const RunMemory memory(*op, {.structures = {{"J", a.structure()}}}, seed);
    try {
      const loop::Memory want = interpret_operator(*op, memory.arguments, Stage::source);
      for (const Stage stage : {Stage::one, Stage::two, Stage::three}) {
        const loop::Memory got = interpret_operator(*op, memory.arguments, stage);
        for (const std::string& output : outputs_of(*op))
          expect_close(got.buffers.at(output), want.buffers.at(output), 1e-6, what);
      }
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << error.what();
    }
    ASSERT_FALSE(HasFailure());
  }
  if (cases > 50) {
    EXPECT_GT(accepted, cases / 4);
  }
}

}  // namespace
}  // namespace weft::sparse::test
