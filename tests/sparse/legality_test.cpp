// Each condition of a primitive alone: a schedule that breaks just this one is refused, and its neighbour that does not
// is taken.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test::legality {
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

const std::string kSteps = steps_program("steps(m, n)", "dense_fixed(n)");

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

// Conditions between the loops are asked in each iteration of both.
TEST(Legality, LoopsThatBecomeOneHaveConditionsBetweenThem) {
  const std::string lines =
      "ii, io = split(csrmm.i, 4)\nreorder(csrmm.io, csrmm.k, csrmm.j)\nf = fuse(csrmm.io, csrmm.k)\n";
  expect_contains(stage2(lines, kSpmmProgram, {{"feat", 8}}),
                  "for f in range(32):\n      if ii * 4 + f // 8 < m:\n        for j", "fused");
  expect_same_results(kSpmmProgram, "lower()\n" + lines, {{"feat", 8}});
  expect_refused("ii, io = split(csrmm.i, 4)\nf = fuse(csrmm.io, csrmm.j)\n", kSpmmProgram, "depends on 'io'",
                 {{"feat", 8}});
  // What a condition may keep inside is not loaded outside of it.
  EXPECT_EQ(refusal([&] {
              expect_same_results(kSpmmProgram,
                                  "sparse_reorder(csrmm, I, K, J)\nlower()\nko, ki = split(csrmm.k, 3)\n"
                                  "f = fuse(ki, csrmm.j)\n",
                                  {{"feat", 8}});
            }),
            "invalid_argument: line 4, column 5: fuse(csrmm.ki, csrmm.j): the extent j_indptr[i + 1] - j_indptr[i] of "
            "'j' is loaded within a condition");
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
  // One for each of loops within, whose number is known.
  const std::string each = "o, u = split(sum.i, 4)\nreorder(o, sum.k, u)\nbind(sum.k, threadIdx.x)\n";
  EXPECT_NE(stage2(each, program("fp32", one)).find("bind=threadIdx.x"), std::string::npos);
  expect_refused("reorder(sum.k, sum.i)\nbind(sum.k, threadIdx.x)\n", program("fp32", one),
                 "'i' within it says where; put the reduction inside");
  expect_refused("bind(sum.k, threadIdx.x)\n", program("fp32", "    S[i] = S[i] * X[i, k]\n"),
                 "threads add up a sum of the form");
  expect_refused("atomic(sum)\n", program("bf16", one), "'S' is of bf16; fp32 and fp64 are added to at once");
  expect_refused("atomic(sum)\n", program("fp32", "    S[i] = S[i] + S[i] * X[i, k]\n"),
                 "the block is no sum of the form");
  expect_refused("cache_write(sum.i, register)\n", program("fp32", "    P[i] = P[i] + X[i, k]\n" + one),
                 "writes more than one element");
  EXPECT_NE(stage2("atomic(sum)\n", program("fp32", one)).find("atomic"), std::string::npos);
}

// Sums over two loops, of which one is scattered where W says.
std::string scattered(const std::string& lines, const std::string& kinds = "SR") {
  return fmt::format(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  W = buffer(K): int32
  V = buffer(I): int32
  P = buffer(K): fp32
  S = buffer(I): fp32
  Z = buffer(I, K): fp32
  iterate it(I, K) "{}" as (i, k) where W[k] >= 0, W[k] < 4, V[i] >= 0, V[i] < m:
{})",
                     kinds, lines);
}

TEST(Legality, LanesAddUpMemoryOfTheirOwnInOneElement) {
  const std::string copied = "cache_read(it.i, X, register)\n", lanes = copied + "vectorize(it.k)\n";
  EXPECT_NE(stage2(lanes, scattered("    S[i] = S[i] + X[i, k]\n")).find("[reduce, vectorize]"), std::string::npos);
  const std::string says = "it is a reduction; rfactor makes partial sums of it";
  expect_refused("vectorize(it.k)\n", scattered("    S[i] = S[i] + X[i, k]\n"), says);
  expect_refused(lanes, scattered("    S[i] = max(S[i], X[i, k])\n"), says);
  expect_refused(lanes, scattered("    S[i] = Z[i, 0] + X[i, k]\n"), says);
  expect_refused(lanes, scattered("    S[i] = S[i] + X[i, k]\n    S[i] = S[i] + X[i, k]\n"), says);
  expect_refused(lanes, scattered("    Z[i, W[k]] = Z[i, W[k]] + X[i, k]\n"), says);
}

TEST(Legality, LanesAndThreadsAccessElementsOfTheirOwn) {
  const auto shift = [](const std::string& from) {
    return fmt::format(
        "program p():\n  K = dense_fixed(8)\n  X = buffer(K): fp32\n  iterate it(K) \"S\" as (k):\n"
        "    X[k] = X[{}] * 2.0\n",
        from);
  };
  for (const char* line : {"vectorize(it.k)\n", "bind(it.k, threadIdx.x)\n", "parallel(it.k)\n"}) {
    EXPECT_NE(stage2(line, shift("k")).find("for k in range(8) ["), std::string::npos);
    expect_refused(line, shift("k + 1"), "X[k + 1] may be written by another of its iterations");
    expect_refused(line, shift("7 - k"), "X[7 - k] may be written by another of its iterations");
  }
}

TEST(Legality, ThreadsAddUpAtAPlaceThatNothingWithinSays) {
  const std::string sum = "    S[i] = S[i] + X[i, k]\n", says = "within it says where; put the reduction inside";
  EXPECT_NE(stage2("bind(it.k, threadIdx.x)\n", scattered(sum)).find("bind=threadIdx.x"), std::string::npos);
  expect_refused("bind(it.k, threadIdx.x)\n", scattered("    Z[i, W[k]] = Z[i, W[k]] + X[i, k]\n"), "'k' " + says);
  expect_refused("reorder(it.k, it.i)\nbind(it.k, threadIdx.x)\n", scattered(sum), "'i' " + says);
  // A row that is searched for within.
  const std::string rows = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  S = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    S[i] = S[i] + A[i, j]
)";
  const std::string message = refusal([&] {
    compile(parse(rows.c_str()), "sparse_fuse(it, I, J)\nlower()\nbind(it.i_j, threadIdx.x)\n", Device::cpu(),
            {.stop_after = "schedule stage II"});
  });
  expect_contains(message, "'i' " + says, "fused");
}

TEST(Legality, LoopsChangePlacesBeforeTheyAreLanes) {
  const std::string pieces = "ko, ki = split(csrmm.k, 4)\n";
  expect_refused(pieces + "vectorize(ki)\nreorder(ki, ko)\n", kSpmmProgram, "'csrmm.ki' is vectorize already",
                 {{"feat", 8}});
  EXPECT_NE(
      stage2(pieces + "unroll(ki)\nreorder(ki, ko)\n", kSpmmProgram, {{"feat", 8}}).find("for ki in range(4) [unroll]"),
      std::string::npos);
}

TEST(Legality, NestsThatMergeStandAloneInSerialLoops) {
  expect_refused("parallel(twice.a)\ncompute_at(twice, sums.i)\n", kSteps, "no serial loop any more; merge before");
  expect_refused("parallel(sums.i)\ncompute_at(twice, sums.i)\n", kSteps, "no serial loop any more; merge before");
  expect_refused("compute_at(twice, sums.i)\ncompute_at(sums, rest.j)\n", kSteps,
                 "other statements stand beside loop 'j'");
}

TEST(Legality, WhatIsKeptIsOneElementThatTheBlockAloneAccesses) {
  const std::string keep = "cache_write(it.i, register)\n";
  EXPECT_NE(stage2(keep, scattered("    S[i] = S[i] + X[i, k]\n")).find("S_local"), std::string::npos);
  expect_refused(keep, scattered("    Z[i, W[k]] = Z[i, W[k]] + X[i, k]\n"),
                 "'Z' is written at W[k], another element in each iteration of the reduction 'k'");
  expect_refused(keep, scattered("    Z[i, k] = Z[i, k] + Z[i, 0]\n", "SS"),
                 "reads other elements of 'Z' than it writes");
  expect_refused("reverse_compute_at(rest, twice.a)\n",
                 replaced(kSteps, "    S[i] = S[i] + T[i, j]", "    S[i] = S[i] + X[i, j]"), "accesses 'S', too");
  expect_refused("reverse_compute_at(two, one.b)\ncache_write(one.a, register)\n", R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  Y = buffer(I, K): fp32
  iterate one(I, K) "SS" as (a, b):
    Y[a, b] = X[a, b]
  iterate two(I, K) "SS" as (i, k):
    Y[i, k] = Y[i, k] * 2.0
)",
                 "another block within the loop accesses 'Y', too");
}

TEST(Legality, WhatIsCopiedFirstStaysAndIsReadAtOnePlace) {
  const auto it = [](const std::string& value) { return scattered("    Z[i, k] = " + value + "\n", "SS"); };
  const std::string copy = "cache_read(it.i, X, register)\n";
  EXPECT_NE(stage2(copy, it("X[i, k]")).find("X_local[k] = X[i, k]"), std::string::npos);
  EXPECT_NE(stage2(copy, it("X[i, k] * X[i, k]")).find("X_local[k] * X_local[k]"), std::string::npos);
  expect_refused(copy, it("X[i, k] + X[i, 3 - k]"), "one place is kept");
  expect_refused(copy, it("real(k)"), "block 'it' does not read 'X'");
  expect_refused(copy, scattered("    X[i, k] = X[i, k] + 1.0\n", "SS"), "block 'it' writes 'X' itself");
  expect_refused("compute_at(twice, sums.j)\ncache_read(sums.i, T, register)\n", kSteps,
                 "'T' is written within the loop");
  // Where it is read changes meanwhile.
  expect_refused(copy, scattered("    P[k] = P[k] + X[i, W[k]]\n    W[k] = 2\n", "RS"),
                 "where 'X' is read depends on 'W', which is set within the loop");
  std::string unasked = scattered("    P[k] = P[k] + X[i, W[k] % 4]\n    W[k] = 2\n", "RS");
  const size_t where = unasked.find(" where ");
  unasked.erase(where, unasked.find(":\n", where) - where);
  expect_refused(copy, unasked, "where 'X' is read depends on 'W', which is set within the loop");
}

// Of places that conditions leave out the copy has what any read needs.
TEST(Legality, WhatIsCopiedFirstIsThereWhereverItIsRead) {
  for (const char* value : {"select(i > 2, 1.0, X[i, k])", "select(i > 2, X[i, k], 0.0) + select(i < 2, X[i, k], 0.0)",
                            "select(i > 2, X[i, k], 0.0) + X[i, k]", "X[i, k] + select(i > 2, X[i, k], 0.0)",
                            "select(i < 1 or X[i, k] > 0.0, 1.0, 2.0)", "select(i < 1 and X[i, k] > 0.0, 1.0, 2.0)"})
    expect_same_results(fmt::format(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  Z = buffer(I, K): fp32
  iterate it(I, K) "SS" as (i, k):
    Z[i, k] = {}
)",
                                    value),
                        "lower()\ncache_read(it.i, X, register)\n", {{"m", 6}});
}

// Init would run behind them, and read what they have changed.
TEST(Legality, PartialSumsComeBeforeAnInitThatReadsNothingOfTheirs) {
  const std::string program = R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): fp32
  E = buffer(I, K): fp32
  Y = buffer(I): fp32
  iterate it(I, K) "SR" as (i, k):
    init:
      Y[i] = E[i, 0]
    Y[i] = Y[i] + X[i, k]
  iterate later(I, K) "SS" as (i, k):
    E[i, k] = X[i, k]
)";
  const std::string moved = "reverse_compute_at(later, it.k)\n", apart = "rfactor(it.k, register)\n";
  expect_refused(moved + apart, program, "which would run behind the partial sums, and they access 'E'");
  EXPECT_NE(stage2(moved + "decompose_reduction(it.k)\n" + apart, program).find("Y_partial"), std::string::npos);
}

TEST(Legality, PartialSumsAreOfTheBlocksOwnReductions) {
  const std::string apart = "rfactor(it.k, register)\n";
  expect_refused(apart, scattered("    Z[i, W[k]] = Z[i, W[k]] + X[i, k]\n"),
                 "'Z' is written at W[k], another element in each iteration of the reduction 'k'");
  // What is the same in all of them is a factor, and what is named or loaded within is none.
  EXPECT_NE(stage2(apart, scattered("    S[i] = S[i] + P[2] * X[i, k]\n")).find("P[2], 0.0) * S_partial"),
            std::string::npos);
  EXPECT_NE(stage2(apart, scattered("    S[i] = S[i] + P[W[k]] * X[i, k]\n")).find("S[i] + S_partial"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::sparse::test::legality
