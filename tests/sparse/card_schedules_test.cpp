// Schedules for cards: whatever is bound, and wherever memory lies, the loops compute what the program says, on the CPU
// too; or the schedule is refused. Their CUDA text is there, or is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "sparse/interpret.h"
#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

const std::string kRest = steps_program("rest(m, n, nnz)", kCsrAxis);
class CardSchedules : public ::testing::Test {
 protected:
  using Lines = std::vector<std::string>;

  // Every line of one list with every line of the others, in the order of the lists.
  void try_all(const char* program, const std::vector<Lines>& lists, const std::string& lines = "") {
    if (lists.size() == num_taken_) return try_one(program, lines);
    for (const std::string& line : lists[num_taken_]) {
      ++num_taken_;
      try_all(program, lists, lines + line);
      --num_taken_;
    }
  }

  void try_one(const char* program, const std::string& lines) {
    SCOPED_TRACE(lines);
    const bool is_spmm = program == kSpmmProgram;
    const std::map<std::string, int64_t> set = {{"feat", kFeat}};
    std::optional<Operator> op;
    const std::string why = refusal([&] {
      op = compile(parse(program), "lower()\n" + lines, Device::cpu(),
                   {.set = is_spmm ? set : std::map<std::string, int64_t>(), .stop_after = "generate"});
    });
    if (!why.empty()) return;
    ++num_made_;
    const RunArguments arguments = is_spmm ? of_spmm() : of_rest();
    const std::string output = is_spmm ? "C" : "Z";
    std::vector<double>& want = want_[output];
    if (want.empty()) want = interpret_operator(*op, arguments, Stage::source).buffers.at(output);
    for (const Stage stage : interpreted_stages(Stage::two))
      expect_close(interpret_operator(*op, arguments, stage).buffers.at(output), want, 1e-6, "the result");
    if (refusal([&] { op->text("cuda"); }).empty()) ++num_of_card_;
  }

  RunArguments of_spmm() {
    return {.structures = {{"J", csr(4, 3, indptr_, indices_)}},
            .buffers = {{"A", {values_.data(), DType::fp32, {6}}},
                        {"B", {b_.data(), DType::fp32, {3, kFeat}}},
                        {"C", {c_.data(), DType::fp32, {4, kFeat}}}}};
  }
  RunArguments of_rest() {
    return {.structures = {{"J", csr(4, 3, indptr_, indices_)}},
            .buffers = {{"X", {values_.data(), DType::fp32, {6}}}, {"Z", {z_.data(), DType::fp32, {6}}}}};
  }

  static constexpr int64_t kFeat = 4;
  std::vector<int32_t> indptr_{0, 2, 2, 5, 6}, indices_{0, 2, 0, 1, 2, 1};
  Values values_ = random_values(6, 91), b_ = random_values(3 * kFeat, 92), c_ = Values(4 * kFeat), z_ = Values(6);
  std::map<std::string, std::vector<double>> want_;
  size_t num_taken_ = 0;
  int num_made_ = 0, num_of_card_ = 0;
};

TEST_F(CardSchedules, OfSumsComputeTheSame) {
  const Lines orders = {"", "reorder(csrmm.k, csrmm.j)\n"};
  const Lines sums = {"cache_write(csrmm.i, register)\n", "cache_write(csrmm.i, shared)\n"};
  const Lines memory = {"",
                        "cache_write(csrmm.k, register)\n",
                        "cache_write(csrmm.k, shared)\n",
                        "cache_read(csrmm.i, B, shared)\n",
                        "cache_read(csrmm.j, B, register)\n",
                        "cache_read(csrmm.j, B, shared)\n",
                        "cache_read(csrmm.j, A, shared)\n",
                        "rfactor(csrmm.j, shared)\n"};
  const Lines i = {"", "bind(csrmm.i, blockIdx.x)\n", "bind(csrmm.i, threadIdx.y)\n", "bind(csrmm.i, threadIdx.x)\n"};
  const Lines j = {"", "bind(csrmm.j, threadIdx.x)\n"};
  const Lines k = {"", "bind(csrmm.k, threadIdx.x)\n", "bind(csrmm.k, threadIdx.y)\n", "bind(csrmm.k, blockIdx.y)\n"};
  try_all(kSpmmProgram, {orders, sums, i, j, k});
  try_all(kSpmmProgram, {orders, memory, i, j, k});
  try_all(kSpmmProgram, {orders, i, j, k, memory});
  try_all(kSpmmProgram, {orders, i, j, k, sums});
  EXPECT_GT(num_made_, 300);
  EXPECT_GT(num_of_card_, 150);
}

TEST_F(CardSchedules, OfNestsWithinEachOtherComputeTheSame) {
  const Lines nests = {"compute_at(sums, rest.i)\ncompute_at(twice, rest.i)\n",
                       "compute_at(twice, sums.j)\ncompute_at(sums, rest.i)\n", "compute_at(sums, rest.i)\n"};
  const Lines memory = {"", "set_scope(S, register)\n", "set_scope(S, shared)\n", "set_scope(S, global)\n",
                        "set_scope(T, shared)\n"};
  const Lines i = {"", "bind(rest.i, blockIdx.x)\n", "bind(rest.i, threadIdx.y)\n", "bind(rest.i, threadIdx.x)\n"};
  const Lines sums = {"", "bind(sums.j, threadIdx.x)\n"};
  const Lines rest = {"", "bind(rest.j, threadIdx.x)\n", "bind(rest.j, threadIdx.y)\n"};
  const Lines twice = {"", "bind(twice.b, threadIdx.x)\n"};
  try_all(kRest.c_str(), {nests, memory, i, sums, rest, twice});
  EXPECT_GT(num_made_, 200);
  EXPECT_GT(num_of_card_, 80);
}

}  // namespace
}  // namespace weft::sparse::test
