// Each condition of a primitive alone: a schedule that breaks just this one is refused, and its neighbour that does not
// is taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/operators/kept.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

std::string stage2(const std::string& schedule, const std::string& program,
                   const std::map<std::string, int64_t>& set = {}) {
  return compile(parse(program.c_str()), "lower()\n" + schedule, Device::cpu(),
                 {.set = set, .stop_after = "schedule stage II"})
      .text("stage2");
}

void expect_refused(const std::string& schedule, const std::string& program, const std::string& says,
                    const std::map<std::string, int64_t>& set = {}) {
  expect_contains(refusal([&] { stage2(schedule, program, set); }), says, schedule);
}

// T = 2 X, Y its rows' sums, Z what is left of each element.
const std::string kSteps = R"(program steps(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  X = buffer(I, J): fp32
  T = temporary(I, J): fp32
  S = temporary(I): fp32
  Z = buffer(I, J): fp32
  iterate twice(I, J) "SS" as (a, b):
    T[a, b] = X[a, b] * 2.0
  iterate sums(I, J) "SR" as (i, j):
    init:
      S[i] = 0.0
    S[i] = S[i] + T[i, j]
  iterate rest(I, J) "SS" as (i, j):
    Z[i, j] = S[i] - T[i, j]
)";

// In the shared outer loop a nest passes what stands beside the inner one: before it with compute_at, behind it with
// reverse_compute_at, and nothing else.
TEST(Legality, ANestThatIsMovedInwardsPassesWhatStandsBesideTheInnerLoop) {
  expect_refused("compute_at(sums, rest.i)\ncompute_at(twice, rest.j)\n", kSteps,
                 "what stands beside loop 'j' accesses 'T', too");
  expect_refused("reverse_compute_at(sums, twice.a)\nreverse_compute_at(rest, twice.b)\n", kSteps,
                 "what stands beside loop 'b' accesses 'S', too");
  // It comes before the sums, which stand before the rest; and behind what is twice, before the sums.
  EXPECT_NE(stage2("reverse_compute_at(rest, sums.i)\ncompute_at(twice, sums.j)\n", kSteps).find("block twice"),
            std::string::npos);
  EXPECT_NE(stage2("compute_at(twice, sums.i)\nreverse_compute_at(rest, sums.i)\n", kSteps).find("block rest"),
            std::string::npos);
}

TEST(Legality, ASumThatIsTakenApartIsTheOnlyOneOfItsBlockAndOfOneForm) {
  const auto program = [](const std::string& lines) {
    return fmt::format(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  P = buffer(I): fp32
  S = buffer(I): fp32
  iterate both(I, K) "SR" as (i, k):
    init:
      P[i] = 0.0
      S[i] = 0.0
{})",
                       lines);
  };
  const std::string schedule = "rfactor(both.k, register)\n",
                    form = "block 'both' is no sum of the form S[i] = S[i] + x";
  expect_refused(schedule, program("    P[i] = P[i] + 2.0 * X[i, k]\n    S[i] = S[i] + X[i, k]\n"), form);
  for (const char* value : {"max(S[i], X[i, k])", "X[i, k] + S[i]", "S[i] - X[i, k]", "S[i] * X[i, k]",
                            "S[i] + S[i] * X[i, k]", "P[i] + X[i, k]"})
    expect_refused(schedule, program(fmt::format("    S[i] = {}\n", value)), form);
  EXPECT_NE(stage2(schedule, program("    S[i] = S[i] + X[i, k]\n")).find("S_partial"), std::string::npos);
}

// An indptr says how much an iteration does where its elements are those of the iterations, and nowhere else.
TEST(Legality, TheTeamSharesALoopByAnIndptrOfThatLoopAlone) {
  const std::string program = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_fixed(I, n, 2, indices=j_indices)
  K = sparse_variable(J, n, nnz, indptr=k_indptr, indices=k_indices)
  X = buffer(I, J, K): fp32
  Y = buffer(I, J, K): fp32
  iterate copy(I, J, K) "SSS" as (i, j, k):
    Y[i, j, k] = X[i, j, k]
)";
  const std::string inner = stage2("reorder(copy.j, copy.i)\nparallel(copy.j)\n", program);
  EXPECT_NE(inner.find("for j in range(2) [parallel]:"), std::string::npos) << inner;
  const std::string outer = stage2("parallel(copy.i)\n", program);
  EXPECT_NE(outer.find("for i in range(m) [parallel]:"), std::string::npos) << outer;
  EXPECT_NE(stage2("parallel(csrmm.i)\n", kSpmmProgram).find("for i in range(m) [parallel, balance=j_indptr]:"),
            std::string::npos);
}

// One by one, what compute_inline asks of a block whose expression goes where it is read.
TEST(Legality, AnExpressionThatGoesWhereItIsReadIsComputedOnceFromWhatStays) {
  const auto program = [](const std::string& first, const std::string& second, const std::string& kind = "fp32",
                          const std::string& first_kinds = "SS") {
    return fmt::format(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  T = temporary(I, K): {}
  S = temporary(I): fp32
  Z = buffer(I, K): fp32
  iterate one(I, K) "{}" as (i, k):
    {}
  iterate two(I, K) "SS" as (i, k):
    {}
)",
                       kind, first_kinds, first, second);
  };
  const std::string inlined = "compute_inline(one)\n", reads = "Z[i, k] = T[i, k]";
  EXPECT_NE(stage2(inlined, program("T[i, k] = X[i, k] + 1.0", reads)).find("Z[i, k] = X[i, k] + 1.0"),
            std::string::npos);
  expect_refused(inlined, program("T[i, k] = X[i, k]", reads, "bf16"), "'T' rounds what is stored in it");
  expect_refused(inlined, program("T[i, k] = T[i, k] + 1.0", reads), "it reads 'T' itself");
  expect_refused(inlined, program("S[i] = X[i, k]", "Z[i, k] = S[i]", "fp32", "SR"), "'S' is written again and again");
  expect_refused(inlined, program("T[i, k] = X[i, k]", "T[i, k] = T[i, k] * 2.0"), "another block writes 'T', too");
  expect_refused(inlined, program("T[i, k] = X[i, k]", "X[i, k] = T[i, k]"),
                 "'X', which it reads, is written after it");
  expect_refused("compute_inline(two)\n", program("Z[i, k] = T[i, k]", "T[i, k] = X[i, k]"), "'T' is read before");
  expect_refused("compute_inline(two)\n", program("T[i, k] = 1.0", "T[i, k] = X[i, k]"),
                 "another block writes 'T', too");
}

TEST(Legality, LoopsThatBecomeOneStandAloneInOneNestAndAreSerial) {
  const std::string fused = "f = fuse(csrmm.ko, csrmm.ki)\n", split = "ko, ki = split(csrmm.k, 4)\n";
  expect_refused(split + "unroll(csrmm.ki)\n" + fused, kSpmmProgram, "one of them is no serial loop any more",
                 {{"feat", 8}});
  expect_refused(split + "unroll(csrmm.ko)\n" + fused, kSpmmProgram, "one of them is no serial loop any more",
                 {{"feat", 8}});
  expect_refused(split + "m = fuse(csrmm.ko, csrmm.ki)\n", kSpmmProgram, "'m': a loop cannot be called so",
                 {{"feat", 8}});
  expect_refused("f = fuse(twice.a, sums.j)\n", kSteps, "are loops of different iterations");
  expect_refused("compute_at(twice, rest.i)\n", kSteps, "what stands between them accesses 'T', too");
  expect_refused("compute_at(twice, sums.i)\nf = fuse(sums.i, sums.j)\n", kSteps,
                 "does not stand directly and alone within");
  expect_refused("reorder(twice.a, sums.j)\n", kSteps, "are loops of different iterations");
  expect_refused("compute_at(twice, sums.i)\nreorder(sums.j, sums.i)\n", kSteps,
                 "other statements stand between the loops");
  expect_refused("reverse_compute_at(sums, twice.a)\nreorder(twice.b, twice.a)\n", kSteps,
                 "other statements stand between the loops");
}

TEST(Legality, ASumThatThreadsOrAtomicsAddUpIsOne) {
  const auto program = [](const std::string& kind, const std::string& lines) {
    return fmt::format(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(64)
  X = buffer(I, K): fp32
  P = buffer(I): fp32
  S = buffer(I): {}
  iterate sum(I, K) "SR" as (i, k):
{})",
                       kind, lines);
  };
  const std::string one = "    S[i] = S[i] + X[i, k]\n";
  expect_refused("bind(sum.k, threadIdx.x)\n", program("fp32", "    P[i] = P[i] + X[i, k]\n" + one),
                 "threads add up one sum, and 2 elements are stored within");
  expect_refused("bind(sum.k, threadIdx.x)\n", program("fp32", "    S[i] = S[i] * X[i, k]\n"),
                 "threads add up a sum of the form");
  expect_refused("atomic(sum)\n", program("bf16", one), "'S' is of bf16; fp32 and fp64 are added to at once");
  expect_refused("atomic(sum)\n", program("fp32", "    S[i] = S[i] + S[i] * X[i, k]\n"),
                 "the block is no sum of the form");
  expect_refused("cache_write(sum.i, register)\n", program("fp32", "    P[i] = P[i] + X[i, k]\n" + one),
                 "writes more than one element");
  EXPECT_NE(stage2("atomic(sum)\n", program("fp32", one)).find("atomic"), std::string::npos);
}

}  // namespace
}  // namespace weft::sparse::test
