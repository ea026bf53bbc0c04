// A grid of formats x pairs of primitives: what is accepted computes SpMM, at every stage; a subset in which every
// format meets every primitive, and every primitive every other one, is compiled, too. And what every operator
// promises: the same bits on any number of workers.
#include "tests/sparse/grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "sparse/operators/ready.h"
#include "tests/sparse/ready_programs.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::test {
namespace {

// SpMM over one matrix of each shape.
struct GridCase {
  explicit GridCase(Shape shape) : a(random_matrix(shape, 800 + static_cast<uint32_t>(shape))) {
    b = random_values(static_cast<size_t>(a.cols * kGridFeat), 801);
    c.resize(static_cast<size_t>(a.rows * kGridFeat));
    want = dense_spmm(a, b, kGridFeat);
    structure = a.structure();
  }
  RunArguments arguments() {
    return {.structures = {{"J", structure}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, kGridFeat}}},
                        {"C", {c.data(), DType::fp32, {a.rows, kGridFeat}}}}};
  }
  Matrix a;
  Structure structure;
  Values b, c;
  std::vector<double> want;
};

// Whether the pair is compiled with this format: with the first one from the number-th on that accepts it.
bool is_turn_of(const GridFormat& format, size_t number, const std::vector<const GridPrimitive*>& pair) {
  if (testing::kUnderSanitizer) return false;
  const auto formats = grid_formats();
  for (size_t f = 0; f < formats.size(); ++f) {
    const GridFormat& next = formats[(number + f) % formats.size()];
    if (next.format == format.format) return true;
    if (accepted_in_grid(grid_schedule(next, pair))) return false;
  }
  return false;
}

class Grid : public ::testing::TestWithParam<GridFormat> {};

TEST_P(Grid, EveryPairOfPrimitivesComputesTheSame) {
  const GridFormat& format = GetParam();
  std::vector<GridCase> cases;
  for (const Shape shape : {Shape::uniform, Shape::power_law, Shape::empty_rows, Shape::one_dense_row, Shape::blocks})
    cases.emplace_back(shape);
  std::set<std::string> compiled;
  size_t num_accepted = 0;
  const auto is_compiled = [&](const GridPrimitive* p) { return compiled.contains(p->name); };
  const auto run = [&](const std::vector<const GridPrimitive*>& primitives, bool is_turn = false) {
    const bool compiles = is_turn || std::ranges::none_of(primitives, is_compiled);  // with none was anything yet
    const std::string schedule = grid_schedule(format, primitives), what = schedule + ": ";
    const std::optional<Operator> op = accepted_in_grid(schedule);
    if (!op) return;
    GridCase& on = cases[num_accepted++ % cases.size()];
    const RunArguments arguments = on.arguments();
    for (const Stage stage : interpreted_stages()) try {
        expect_close(interpret_operator(*op, arguments, stage).buffers.at("C"), on.want, 1e-6,
                     fmt::format("{}stage {}", what, static_cast<int>(stage)));
      } catch (const std::exception& error) {
        FAIL() << what << error.what();
      }
    if (!compiles) return;
    for (const GridPrimitive* p : primitives) compiled.insert(p->name);
    std::fill(on.c.begin(), on.c.end(), std::nanf(""));
    grid_operator(schedule).run(arguments);
    expect_close(doubles(on.c), on.want, 1e-5, what + "compiled");
  };
  size_t number = 0;
  for (const GridPrimitive& first : grid_primitives())
    for (const GridPrimitive* second = &first + 1; second != grid_primitives().data() + grid_primitives().size();
         ++second) {
      ++number;
      if (testing::kUnderSanitizer && number % 10 != 1) continue;  // what is interpreted alike is watched alike
      run({&first, second}, is_turn_of(format, number, {&first, second}));
      if (HasFatalFailure()) return;
    }
  for (const GridPrimitive& alone : grid_primitives()) {
    run({&alone});
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(num_accepted, testing::kUnderSanitizer ? 8u : 25u);
  EXPECT_GE(compiled.size(), 8u);
}
INSTANTIATE_TEST_SUITE_P(Formats, Grid, ::testing::ValuesIn(grid_formats().begin(), grid_formats().end()),
                         [](const auto& tested) {
                           std::string name;
                           for (const char c : std::string(tested.param.format))
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name.empty() ? std::string("as_it_is") : name;
                         });

// Twice on each number of workers, too.
TEST(Workers, EveryReadyOperatorGivesTheSameBitsOnOneToSevenWorkers) {
  for (const ReadyCase& c : ready_cases()) {
    const Operator op = kept_operator(c.ready);
    const Matrix a = random_matrix(Shape::power_law, 821);
    std::map<std::string, std::vector<char>> first;
    for (int workers = 1; workers <= 7; ++workers) {
      WorkerTeam team(workers);
      for (int repeat = 0; repeat < 2; ++repeat) {
        RunMemory memory(op, {.structures = {{c.axis, c.structure(a)}}, .scalars = c.scalars, .reals = c.reals}, 822);
        op.run(memory.arguments, Stream::cpu(team));
        if (first.empty()) first = memory.bytes;
        EXPECT_EQ(memory.bytes, first) << c.name << " on " << workers << " workers, run " << repeat;
      }
    }
  }
}

}  // namespace
}  // namespace weft::sparse::test
