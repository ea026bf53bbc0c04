// What primitives take out of loops that may have no iteration: it does what the loops would have done, which is
// nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::empty_loops {
namespace {

// Runs the schedule through the interpreters and compiled, at every number of columns.
void expect_same_for_any_n(const std::string& program, const std::string& schedule) {
  const Operator op = compile(parse(program), "lower()\n" + schedule, Device::cpu());
  for (const int64_t n : {0, 1, 2, 3, 5, 8}) {
    const int64_t m = 7;
    Values x = random_values(static_cast<size_t>(m * n), 11), a = random_values(static_cast<size_t>(n), 12), y(7, 2.f),
           w(static_cast<size_t>(m * n), 3.f);
    const std::map<std::string, TensorView> all = {
        {"X", view(x, {m, n})}, {"A", view(a, {n})}, {"Y", view(y, {m})}, {"W", view(w, {m, n})}};
    RunArguments arguments;
    for (const auto& [name, tensor] : all)
      if (program.find(" " + name + " = buffer") != program.npos) arguments.buffers[name] = tensor;
    const std::string output = outputs_of(op).at(0);
    const std::vector<double> want = interpret_operator(op, arguments, Stage::source).buffers.at(output);
    for (const Stage stage : interpreted_stages(Stage::one))
      expect_close(interpret_operator(op, arguments, stage).buffers.at(output), want, 1e-9,
                   fmt::format("{} of {} columns, stage {}", schedule, n, static_cast<int>(stage)));
    op.run(arguments);
    expect_close(doubles(output == "Y" ? y : w), want, 1e-5, fmt::format("{} of {} columns", schedule, n));
  }
}

std::string program_of_columns(const std::string& rest) {
  return "program p(m, n):\n  I = dense_fixed(m)\n  J = dense_fixed(n)\n  V = dense_fixed(4)\n" + rest;
}

std::string stage2_of(const std::string& program, const std::string& schedule,
                      const std::map<std::string, int64_t>& set = {}) {
  return compile(parse(program), "lower()\n" + schedule, Device::cpu(), {.set = set, .stop_after = "generate"})
      .text("stage2");
}

// An infinite factor of no term is no NaN.
TEST(EmptyReductions, HaveNoFactor) {
  const std::string dense = program_of_columns(R"(  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    Y[i] = Y[i] + (1.0 / real(i % 3)) * abs(X[i, j])
)");
  expect_same_for_any_n(dense, "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n");
  const std::string text = stage2_of(dense, "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n");
  expect_contains(text, "Y[i] = Y[i] + select(ji_sum < n, 1.0 / real(i % 3), 0.0) * Y_partial[ji_sum]", "");
  // Where they have an iteration in any case nothing is asked.
  expect_contains(stage2_of(dense, "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n", {{"n", 6}}),
                  "Y[i] = Y[i] + 1.0 / real(i % 3) * Y_partial[ji_sum]", "");

  const std::string sparse = program_in_csr(R"(  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    init:
      Y[i] = 0.0
    Y[i] = Y[i] + (1.0 / real(i % 3)) * abs(A[i, j])
)");
  expect_same_results(sparse, "lower()\njo, ji = split(it.j, 4)\nrfactor(ji, register)\n", {});
  expect_same_results(sparse, "lower()\njo, ji = split(it.j, 4)\nreorder(ji, jo)\nrfactor(ji, register)\n", {});
}

// Whether a row has any iteration is known only within the reduction over the rows, or by asking each point.
TEST(EmptyReductions, WhoseExtentsDependOnOthersKeepTheFactorWithin) {
  const std::string rows = program_in_csr(R"(  A = buffer(I, J): fp32
  F = dense_fixed(2)
  Y = buffer(F): fp32
  iterate it(F, I, J) "SRR" as (f, i, j):
    Y[f] = Y[f] + (1.0 / real(f)) * abs(A[i, j])
)");
  const std::string split = "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n";
  expect_same_results(rows, "lower()\n" + split, {});
  expect_contains(stage2_of(rows, split), "Y[f] = Y[f] + Y_partial[ji_sum]", "");
  for (const char* where : {"X[i, j] > 2.0", "j > 9", "j % 2 == 2", "n < 2 * j", "5 < n - j"}) {
    const std::string program = program_of_columns(fmt::format(R"(  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j) where {}:
    Y[i] = Y[i] + (1.0 / real(i % 3)) * abs(X[i, j])
)",
                                                               where));
    expect_same_for_any_n(program, split);
  }
}

// n is 1 or more in the loop over n columns: outside of it i % n is a column only where there are some.
TEST(EmptyReductions, ReadAndWriteNothing) {
  const std::string factor = program_of_columns(R"(  X = buffer(I, J): fp32
  A = buffer(J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    Y[i] = Y[i] + A[i % n] * X[i, j]
)");
  const std::string split = "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n";
  expect_same_for_any_n(factor, split);
  expect_same_for_any_n(factor, "cache_read(it.i, A, register)\n");
  expect_contains(stage2_of(factor, "cache_read(it.i, A, register)\n"), "    if 0 < n:\n      block it_fetch", "");
  const std::string target = program_of_columns(R"(  X = buffer(I, J): fp32
  W = buffer(I, J): fp32
  iterate it(I, J) "SR" as (i, j):
    W[i, i % n] = W[i, i % n] + X[i, j]
)");
  expect_same_for_any_n(target, split);
  expect_same_for_any_n(target, "cache_write(it.i, register)\n");
}

// As above, of an element of a matrix behind another axis, of a condition, and beside an init of something else.
TEST(EmptyReductions, ReadAndWriteNothingWhateverIsAround) {
  const std::string heads = R"(program p(m, n, nnz, q):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  Q = dense_fixed(q)
  F = dense_fixed(3)
  V = buffer(Q, I, J): fp32
  X = buffer(Q): fp32
  Y = buffer(F, I, J): fp32
  iterate it(F, I, J, Q) "SSSR" as (f, i, j, x):
    Y[f, i, j] = Y[f, i, j] + V[f % q, i, j] * X[x]
)";
  expect_contains(stage2_of(heads, "cache_read(it.j, V, register)\n"), "if 0 < q:", heads);
  const auto refused = [](const std::string& program) {
    return refusal([&] {
      stage2_of(program_of_columns("  X = buffer(I, J): fp32\n  A = buffer(J): fp32\n  W = buffer(I, J): fp32\n"
                                   "  Y = buffer(I): fp32\n  iterate it(I, J) \"SR\" as (i, j)" +
                                   program),
                "jo, ji = split(it.j, 4)\nrfactor(ji, register)\n");
    });
  };
  expect_contains(refused(" where A[i % n] > 0.0:\n    Y[i] = Y[i] + X[i, j]\n"),
                  "A[i % n] would be accessed where loops that it is taken out of have no iteration", "condition");
  expect_contains(refused(":\n    init:\n      Y[i] = 1.0\n    W[i, i % n] = W[i, i % n] + X[i, j]\n"),
                  "'W' may be added to only where", "init");
}

// A condition or an element that divides by what is loaded is asked in the loops alone: outside of them it would be for
// rows that have no iteration, too.
TEST(EmptyReductions, DivideByNothing) {
  const auto program = [](const std::string& where, const std::string& element, const std::string& init) {
    return program_of_columns(fmt::format(R"(  R = buffer(I): int32
  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j){0}:
{2}    Y[{1}] = Y[{1}] + X[i, j]
)",
                                          where, element, init));
  };
  const auto refused = [&](const std::string& text, const std::string& schedule, int64_t n = -1) {
    std::map<std::string, int64_t> set;
    if (n >= 0) set["n"] = n;
    return refusal(
        [&] { compile(parse(text), "lower()\n" + schedule, Device::cpu(), {.set = set, .stop_after = "generate"}); });
  };
  const std::string where = program(" where 7 // R[i] > 2", "i", ""),
                    says =
                        "block 'it': 7 // R[i] may fail, and would be computed where loops that it is taken out of "
                        "have no iteration";
  for (const char* schedule : {"jo, ji = split(it.j, 4)\nrfactor(ji, register)\n", "cache_write(it.i, register)\n"}) {
    expect_contains(refused(where, schedule), says, schedule);
    // With columns there is an iteration in any case; and init asks the same.
    EXPECT_EQ(refused(where, schedule, 5), "") << schedule;
    EXPECT_EQ(refused(program(" where 7 // R[i] > 2", "i", "    init:\n      Y[i] = 0.0\n"), schedule), "") << schedule;
  }
  std::string element = program("", "7 // R[i] % 4", "");
  element.replace(element.find("Y = buffer(I)"), 13, "Y = buffer(V)");
  for (const char* schedule : {"jo, ji = split(it.j, 4)\nrfactor(ji, register)\n", "cache_write(it.i, register)\n"}) {
    expect_contains(refused(element, schedule), says, element);
    EXPECT_EQ(refused(element, schedule, 5), "") << schedule;
  }
}

}  // namespace
}  // namespace weft::sparse::test::empty_loops
