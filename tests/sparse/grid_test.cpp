// A grid of formats x pairs of primitives: what is accepted computes SpMM, at every stage; a subset in which every
// format meets every primitive is compiled, too. And what every operator promises: the same bits on any number of
// workers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "sparse/operators/kept.h"
#include "tests/sparse/ready_programs.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

struct GridFormat {
  const char* format;         // "": as it is
  const char *rows, *places;  // the variables of its loops
};
constexpr GridFormat kFormats[] = {
    {"", "i", "j"},          {"csr()", "i", "j"},           {"ell(2), csr()", "i", "j"}, {"bsr(2)", "io", "jo"},
    {"csc()", "i", "j"},     {"coo()", "k", "e"},           {"dcsr()", "i", "j"},        {"dbsr(2)", "io", "jo"},
    {"dia()", "i", "d"},     {"sr_bcrs(2, 3)", "s", "g"},   {"hyb(1, 2)", "i", "j"},     {"hyb(2, 1)", "i", "j"},
    {"tiles()", "io", "jo"}, {"bsr(2), csr()", "jo", "ji"},
};
constexpr const char* kTiles = R"(format tiles(I, J) with (num_tiles):
  IO = dense_fixed((m + 1) // 2)
  JO = sparse_variable(IO, (n + 3) // 4, num_tiles, indptr=tiles_indptr, indices=tiles_indices)
  II = dense_fixed(2)
  JI = dense_fixed(4)
  buffer(IO, JO, II, JI)
  to IO = I // 2, JO = J // 4, II = I % 2, JI = J % 4
  from I = IO * 2 + II, J = JO * 4 + JI
)";

struct GridPrimitive {
  const char* name;
  const char* lines;  // of stage II; ROWS and PLACES are loops
  bool stage1 = false;
};
constexpr GridPrimitive kPrimitives[] = {
    {"sparse_reorder", "sparse_reorder(csrmm, K, I, J)\n", true},
    {"sparse_fuse", "sparse_fuse(csrmm, I, J)\n", true},
    {"decompose_reduction", "decompose_reduction(csrmm.ROWS)\n"},
    {"split", "split_o, split_i = split(csrmm.k, 3)\n"},
    {"split rows", "rows_o, rows_i = split(csrmm.ROWS, 3)\n"},
    {"split places", "places_o, places_i = split(csrmm.PLACES, 2)\n"},
    {"fuse", "fuse_o, fuse_i = split(csrmm.k, 2)\nfused = fuse(fuse_o, fuse_i)\n"},
    {"reorder", "reorder(csrmm.k, csrmm.PLACES)\n"},
    {"reorder rows", "reorder(csrmm.k, csrmm.ROWS)\n"},
    {"cache_write", "reorder(csrmm.k, csrmm.PLACES)\ncache_write(csrmm.k, register)\n"},
    {"cache_read", "cache_read(csrmm.PLACES, B, register)\n"},
    {"set_scope", "reorder(csrmm.k, csrmm.PLACES)\ncache_write(csrmm.k, register)\nset_scope(C_local, shared)\n"},
    {"blockize", "whole = blockize(csrmm.k)\n"},
    {"rfactor", "reorder(csrmm.k, csrmm.PLACES)\nrf_o, rf_i = split(csrmm.PLACES, 2)\nrfactor(rf_i, register)\n"},
    {"vectorize", "vector_o, vector_i = split(csrmm.k, 4)\nvectorize(vector_i)\n"},
    {"unroll", "unroll_o, unroll_i = split(csrmm.k, 2)\nunroll(unroll_i)\n"},
    {"annotate", "annotate(csrmm.PLACES, prefetch, 2)\n"},
    {"atomic", "atomic(csrmm)\n"},
    {"parallel", "parallel(csrmm.ROWS)\n"},
    {"bind", "bind(csrmm.ROWS, blockIdx.x)\n"},
};

std::string schedule_of(const GridFormat& format, const std::vector<const GridPrimitive*>& primitives) {
  std::string stage1, stage2;
  for (const GridPrimitive* p : primitives) (p->stage1 ? stage1 : stage2) += p->lines;
  std::string text = *format.format == 0 ? stage1 : fmt::format("decompose_format(csrmm, A, {})\n", format.format);
  if (*format.format != 0 && !stage1.empty()) text = stage1 + text;
  return replaced(replaced(text + "lower()\n" + stage2, "ROWS", format.rows), "PLACES", format.places);
}

// SpMM over one matrix of each shape.
struct GridCase {
  static constexpr int64_t kFeat = 6;
  explicit GridCase(Shape shape) : a(random_matrix(shape, 800 + static_cast<uint32_t>(shape))) {
    b = random_values(static_cast<size_t>(a.cols * kFeat), 801);
    c.resize(static_cast<size_t>(a.rows * kFeat));
    want = dense_spmm(a, b, kFeat);
    structure = a.structure();
  }
  RunArguments arguments() {
    return {.structures = {{"J", structure}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, kFeat}}},
                        {"C", {c.data(), DType::fp32, {a.rows, kFeat}}}}};
  }
  Matrix a;
  Structure structure;
  Values b, c;
  std::vector<double> want;
};

// The operator up to its code; none where the schedule is refused.
std::optional<Operator> made(const std::string& text, const std::string& schedule, const std::string& what) {
  try {
    return compile(parse(text), schedule, Device::cpu(),
                   {.set = {{"feat", GridCase::kFeat}}, .stop_after = "generate"});
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::unsupported)
        << what << error.what();
    return std::nullopt;
  }
}

const std::string kText = std::string(kSpmmProgram) + kTiles;

class Grid : public ::testing::TestWithParam<GridFormat> {};

TEST_P(Grid, EveryPairOfPrimitivesComputesTheSame) {
  const GridFormat& format = GetParam();
  std::vector<GridCase> cases;
  for (const Shape shape : {Shape::uniform, Shape::power_law, Shape::empty_rows, Shape::one_dense_row, Shape::blocks})
    cases.emplace_back(shape);
  std::set<std::string> compiled;
  size_t num_accepted = 0;
  const auto run = [&](const std::vector<const GridPrimitive*>& primitives) {
    const std::string schedule = schedule_of(format, primitives), what = schedule + ": ";
    const std::optional<Operator> op = made(kText, schedule, what);
    if (!op) return;
    GridCase& on = cases[num_accepted++ % cases.size()];
    const RunArguments arguments = on.arguments();
    for (const Stage stage : {Stage::one, Stage::two, Stage::three}) try {
        expect_close(interpret_operator(*op, arguments, stage).buffers.at("C"), on.want, 1e-6,
                     fmt::format("{}stage {}", what, static_cast<int>(stage)));
      } catch (const std::exception& error) {
        FAIL() << what << error.what();
      }
    // Compiled where no pair with one of them was yet.
    for (const GridPrimitive* p : primitives)
      if (compiled.contains(p->name)) return;
    for (const GridPrimitive* p : primitives) compiled.insert(p->name);
    std::fill(on.c.begin(), on.c.end(), std::nanf(""));
    compile(parse(kText), schedule, Device::cpu(), {.set = {{"feat", GridCase::kFeat}}}).run(arguments);
    expect_close(doubles(on.c), on.want, 1e-5, what + "compiled");
  };
  int number = 0;
  for (const GridPrimitive& first : kPrimitives)
    for (const GridPrimitive* second = &first + 1; second != std::end(kPrimitives); ++second) {
      if (testing::kUnderSanitizer && number++ % 5 != 0) continue;  // what is interpreted alike is watched alike
      run({&first, second});
      if (HasFatalFailure()) return;
    }
  for (const GridPrimitive& alone : kPrimitives) {
    run({&alone});
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(num_accepted, testing::kUnderSanitizer ? 8u : 25u);
  EXPECT_GE(compiled.size(), 8u);
}
INSTANTIATE_TEST_SUITE_P(Formats, Grid, ::testing::ValuesIn(kFormats), [](const auto& tested) {
  std::string name;
  for (const char c : std::string(tested.param.format))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name.empty() ? std::string("as_it_is") : name;
});

// Nothing passes because all is refused.
TEST(Schedules, EveryPrimitiveIsAcceptedBySomeFormats) {
  for (const GridPrimitive& primitive : kPrimitives) {
    int count = 0;
    for (const GridFormat& format : kFormats) count += made(kText, schedule_of(format, {&primitive}), "") ? 1 : 0;
    EXPECT_GE(count, primitive.stage1 || std::string(primitive.name) == "decompose_reduction" ? 1 : 3)
        << primitive.name;
  }
}

// Twice on each number of workers, too.
TEST(Workers, EveryReadyOperatorGivesTheSameBitsOnOneToSevenWorkers) {
  for (const ReadyCase& c : ready_cases()) {
    const Operator op = kept_operator(c.ready);
    const Matrix a = random_matrix(Shape::power_law, 821);
    std::map<std::string, std::vector<char>> first;
    for (int workers = 1; workers <= 7; ++workers) {
      WorkerTeam team(workers);
      for (int repeat = 0; repeat < 2; ++repeat) {
        RunMemory memory(op, {.structures = {{c.axis, c.structure(a)}}, .scalars = c.scalars}, 822);
        op.run(memory.arguments, Stream::cpu(team));
        if (first.empty()) first = memory.bytes;
        EXPECT_EQ(memory.bytes, first) << c.name << " on " << workers << " workers, run " << repeat;
      }
    }
  }
}

}  // namespace
}  // namespace weft::sparse::test
