// Schedules that once computed something else or read out of bounds: each is refused by name, or computes what its
// program says.
#include "tests/sparse/sound_schedules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/stage2/primitives.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::sound_schedules {
namespace {

// ---- an expression that goes where it is read takes its block with it, and nothing else

TEST(Inlining, LeavesWhatStandsBesideTheBlock) {
  for (const char* schedule :
       {"lower()\nreverse_compute_at(sums, twice.b)\ncompute_inline(twice)\n",
        "lower()\nreverse_compute_at(sums, twice.a)\ncompute_inline(twice)\n",
        "lower()\ncompute_at(twice, sums.j)\ncompute_inline(twice)\n",
        "lower()\ncompute_at(twice, sums.i)\ncompute_at(sums, rest.i)\ncompute_inline(twice)\n"}) {
    expect_same_results(kSteps, schedule, {});
    const std::string text = stage2_of(kSteps, schedule);
    EXPECT_EQ(text.find("block twice"), text.npos) << text;
    EXPECT_NE(text.find("block sums"), text.npos) << text;
  }
  // Loops that stand around nothing any more go, too.
  EXPECT_EQ(stage2_of(kSteps, "lower()\nreverse_compute_at(sums, twice.a)\ncompute_inline(twice)\n"),
            R"(  for a in range(m):
    for j in range(j_indptr[a + 1] - j_indptr[a]) [reduce]:
      block sums:
        reads: S[a], X[a, j]
        writes: S[a]
        init:
          S[a] = 0.0
        S[a] = S[a] + X[a, j] * 2.0
  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      block rest:
        reads: S[i], X[i, j]
        writes: Z[i, j]
        Z[i, j] = S[i] - X[i, j] * 2.0
)");
}

TEST(Inlining, IsNotOfWhatOthersUpdate) {
  expect_refused(kSteps, "lower()\ndecompose_reduction(sums.j)\ncompute_inline(sums_init)\n",
                 "compute_inline(sums_init): another block writes 'S', too");
  expect_refused(kSteps, "lower()\ndecompose_reduction(sums.i)\ncompute_inline(sums_init)\n",
                 "compute_inline(sums_init): another block writes 'S', too");
}

// X is twice what it was when T is read.
TEST(Inlining, IsNotOfWhatChangesInItsOwnLoops) {
  const std::string program = program_of_matrix(R"(  X = buffer(I, J): fp32
  T = temporary(I, J): fp32
  Z = buffer(I, J): fp32
  iterate one(I, J) "SS" as (i, j):
    T[i, j] = X[i, j] + 1.0
  iterate two(I, J) "SS" as (i, j):
    X[i, j] = X[i, j] * 2.0
  iterate three(I, J) "SS" as (i, j):
    Z[i, j] = T[i, j]
)");
  for (const char* first : {"", "reverse_compute_at(two, one.i)\n", "reverse_compute_at(two, one.j)\n"})
    expect_refused(program, fmt::format("lower()\n{}compute_inline(one)\n", first),
                   "'X', which it reads, is written after it", {{"m", 3}, {"n", 4}});
}

TEST(Inlining, IsNotOfWhatIsSetBesideIt) {
  const std::string program = program_in_csr(R"(  X = buffer(I, J): fp32
  T = temporary(I, J): fp32
  Z = buffer(I, J): fp32
  iterate one(I, J) "SS" as (i, j):
    T[i, j] = X[i, j]
  iterate two(I, J) "SS" as (i, j):
    Z[i, j] = T[i, j]
)");
  expect_refused(program, "lower()\ncache_read(one.i, X, register)\ncompute_inline(one)\n", "is no literal");
  expect_refused(program, "lower()\njo, ji = split(one.j, 4)\ncompute_inline(one)\n",
                 "a condition or a block stands around it");
  expect_refused(program, "lower()\ncache_read(one.j, X, register)\ncompute_inline(one)\n",
                 "it needs 'X_local', which is set beside it");
  expect_refused(program, "sparse_fuse(one, I, J)\nlower()\ncompute_inline(one)\n",
                 "it needs 'i', which is set beside it");
}

// ---- memory around loops that threads share is memory of every iteration

TEST(BoundLoops, KeepElementsOfTheirOwn) {
  const std::string schedule = "lower()\nbind(csrmm.k, blockIdx.y)\ncache_write(csrmm.i, register)\n";
  expect_refused(kSpmm, schedule, "the extent feat of 'k', which is bound to blockIdx.y, is no literal; split it");
  for (const char* thread : {"blockIdx.y", "threadIdx.x"})
    for (const char* scope : {"register", "shared", "global"}) {
      const std::string lines = fmt::format("lower()\nbind(csrmm.k, {})\ncache_write(csrmm.i, {})\n", thread, scope);
      EXPECT_NE(stage2_of(kSpmm, lines, {{"feat", 6}}).find("allocate C_local[6]"), std::string::npos) << lines;
      expect_same_results(kSpmm, lines, {{"feat", 6}});
    }
}

// ---- conditions stay around what they keep inside

TEST(Guards, StandAroundExtentsThatAreLoaded) {
  // The last piece of the rows is not whole.
  const std::string before = "lower()\nio, ii = split(csrmm.i, 64)\n";
  for (const char* lines : {"reorder(csrmm.ii, csrmm.j)\n", "reorder(csrmm.ii, csrmm.j)\njo, ji = split(csrmm.j, 4)\n",
                            "reorder(csrmm.io, csrmm.ii, csrmm.j, csrmm.k)\n", "reorder(ii, csrmm.k, csrmm.j)\n",
                            "jo, ji = split(csrmm.j, 4)\nreorder(ii, csrmm.k, jo, ji)\nrfactor(ji, register)\n"}) {
    expect_same_results(kSpmm, before + lines, {{"feat", 3}});
    const std::string text = stage2_of(kSpmm, before + lines, {{"feat", 3}});
    EXPECT_LT(text.find("if io * 64 + ii < m"), text.find("j_indptr")) << text;
  }
  expect_same_results(kSpmm, before + "jo, ji = split(csrmm.j, 4)\nreorder(csrmm.k, ji)\n", {{"feat", 3}});
}

// The condition speaks of both loops, and the extent of one of them.
TEST(Guards, ThatCannotStandAroundAnExtentRefuseTheOrder) {
  Stage2 stage = parse_stage2(R"(stage2 p(m, n, nnz, w):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  for i in range(w):
    for u in range(4):
      if i + u < m:
        for j in range(j_indptr[i + 1] - j_indptr[i]):
          block b:
            A[i, j] = A[i, j] + 1.0
)");
  expect_contains(refusal([&] {
                    reorder(stage, {"b.j", "b.u"});
                  }),
                  "reorder(b.j, b.u): the condition i + u < m, which may keep the extent j_indptr[i + 1] - j_indptr[i] "
                  "of 'j' inside of its array, uses 'u', which would stand within it",
                  "both");
}

TEST(Guards, HoldForWhatIsCopiedFirst) {
  const std::string program = program_of_matrix(R"(  X = buffer(I): fp32
  Y = buffer(I, J): fp32
  iterate it(I, J) "SS" as (i, j):
    Y[i, j] = X[i - 1] + X[i - 1] * real(j)
)");
  expect_same_results(program, "lower()\ncache_read(it.i, X, register)\n", {{"m", 4}, {"n", 3}});
  EXPECT_NE(stage2_of(program, "lower()\ncache_read(it.i, X, register)\n")
                .find("X_local[0] = select(i - 1 >= 0, X[i - 1], 0.0)"),
            std::string::npos)
      << stage2_of(program, "lower()\ncache_read(it.i, X, register)\n");
}

// Where it is copied to is known only behind the search.
TEST(Guards, ThatAreSetFurtherInsideRefuseTheCopy) {
  const std::string program = R"(program p(m, n, nnz, all):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  L = sparse_variable(I, n, all, indptr=l_indptr, indices=l_indices)
  T = buffer(I, J): fp32
  V = buffer(I): fp32
  Z = buffer(I, L): fp32
  iterate it(I, L) "SS" as (a, b):
    Z[a, b] = select(T[a, b] > 0.0, V[a], 0.0)
)";
  expect_refused(program, "lower()\ncache_read(it.a, V, register)\n", "whether 'V' may be read depends on");
}

// A row without elements keeps what it had.
TEST(Guards, MemoryOfReductionsThatRunNotOnceIsReadFirst) {
  const std::string last = program_in_csr(R"(  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    Y[i] = A[i, j]
)");
  expect_same_results(last, "lower()\ncache_write(it.i, register)\n", {});
}

TEST(Guards, AreNotLeftOutWhereTheyKeepWritesInside) {
  const auto program = [](const char* where) {
    return program_of_matrix(fmt::format(R"(  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j) where {}:
    Y[i + 1] = Y[i + 1] + A[i, j]
)",
                                         where));
  };
  const Set set = {{"m", 5}, {"n", 4}};
  const std::string keep = "lower()\ncache_write(it.i, register)\n", apart = "lower()\nrfactor(it.j, register)\n";
  for (const std::string& schedule : {keep, apart})
    expect_refused(program("i + 1 + (5 - j) < m"), schedule,
                   "Y[i + 1] would be accessed where i + 1 + (5 - j) < 5 does not hold, which depends on a reduction",
                   set);
  // What holds at any point of the reduction holds at the first one.
  for (const std::string& schedule : {std::string(), keep, apart})
    expect_same_results(program("i + 1 + j < m"), schedule, set);
  expect_contains(stage2_of(program("i + 1 + j < m"), keep, set), "if i + 1 < 5:\n      block it_read", "");
}

// ---- what two iterations write is in no memory of one of them

TEST(Memory, OfOneIterationHoldsNoElementOfAnother) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  Y = buffer(I, U): fp32
  iterate it(I, U) "SS" as (i, u):
    Y[i, u % 4] = Y[i, u % 4] + X[i, u]
)");
  expect_refused(program, "lower()\ncache_write(it.i, register)\n",
                 "Y[i, u % 4] may be the same element in two iterations of 'u'");
  expect_same_results(program, "lower()\ncache_write(it.u, register)\n", {{"m", 3}});
}

TEST(Memory, OfOneBlockIsNotForWhatAnotherOneOnlyWrites) {
  const std::string program = program_of_rows(R"(  V = dense_fixed(4)
  W = dense_fixed(1)
  X = buffer(I, U, V): fp32
  Y = buffer(I, U): fp32
  iterate cells(I, U) "SS" as (i, u):
    iterate sums(V) "R" as (v):
      Y[i, u] = Y[i, u] + X[i, u, v]
    iterate last(W) "S" as (w):
      Y[i, u + w] = 7.0
)");
  expect_refused(program, "lower()\ncache_write(sums.i, register)\n",
                 "another block within the loop accesses 'Y', too");
  expect_same_results(program, "lower()\ncache_write(sums.u, register)\n", {{"m", 3}});
}

// Init reads what it sets, and sets what decides where something is written.
TEST(Memory, HoldsWhatInitReads) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  Y = buffer(I): fp32
  Z = buffer(I): fp32
  F = buffer(I): int32
  iterate least(I, U) "SR" as (i, u):
    init:
      Y[i] = min(Y[i], 1.0)
    Y[i] = Y[i] + X[i, u]
  iterate counted(I, U) "SR" as (i, u) where F[i] > 0:
    init:
      F[i] = F[i] - 1
      Z[i] = real(F[i])
    Z[i] = Z[i] + X[i, u]
)");
  for (const char* lines : {"cache_write(least.i, register)\n", "u1, u2 = split(least.u, 2)\nrfactor(u2, register)\n"})
    expect_same_results(program, std::string("lower()\n") + lines, {{"m", 3}});
  expect_refused(program, "lower()\ncache_write(counted.i, register)\n",
                 "where 'Z' is written depends on 'F', which is set within the loop");
}

TEST(Init, IsBehindNoSumThatReadsWhatItSets) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  Y = buffer(I): fp32
  Z = buffer(I): fp32
  iterate sums(I, U) "SR" as (i, u):
    init:
      Y[i] = 0.0
      Z[i] = X[i, 0] + 1.0
    Y[i] = Y[i] + Z[i] * X[i, u]
)");
  expect_refused(program, "lower()\nu1, u2 = split(sums.u, 2)\nrfactor(u2, register)\n",
                 "init of block 'sums', which would run behind the partial sums, and they access 'Z'");
  expect_same_results(program, "lower()\nu1, u2 = split(sums.u, 2)\ndecompose_reduction(u1)\nrfactor(u2, register)\n",
                      {{"m", 3}});
}

// ---- what is moved out of loops is evaluated where those run no iteration, too

TEST(Divisions, ThatMayFailStayWhereTheyAre) {
  const std::string program = R"(program p(m, n, nnz, q):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(m)
  A = buffer(I, N): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    Y[i] = Y[i] + A[i, i % q]
)";
  expect_refused(program, "lower()\ncache_read(it.i, A, register)\n", "may divide by 0, also where nothing is read");
}

// A search that is asked for by what is added to asks nothing where that is not there.
TEST(Searches, ReadWhatIsAddedToWhereItIs) {
  const std::string program = program_in_csr(R"(  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    Y[i + 1] = select(Y[i + 1] < 1.0, A[i, j // n], 2.0)
)");
  const std::string text = stage2_of(program, "lower()\n");
  expect_contains(text, "= select(i + 1 < m and Y[i + 1] < 1.0, find(", "");
}

// Where nothing is stored, nothing of the value is asked for: what would fail there does not.
TEST(Searches, AreMadeWhereWhatTheyAreForIsStored) {
  const std::string program = program_in_csr(R"(  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I) "S" as (i):
    Y[i + 1] = A[i, i // n]
)");
  expect_contains(stage2_of(program, "lower()\n"), "= select(i + 1 < m, find(", "");
}

// Init of a block that runs before one of two loops and within the other stays so.
TEST(Fusing, LoopsOfWhichOneIsABlocksReduction) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  S = temporary(I): fp32
  T = buffer(I): fp32
  W = buffer(I): int32
  iterate rows(I) "R" as (i):
    iterate sum(U) "R" as (u) where W[i] >= 0, W[i] < m:
      T[W[i]] = T[W[i]] + X[i, u]
)");
  const std::string two = program_of_rows(R"(  X = buffer(I, U): fp32
  S = buffer(I): fp32
  P = buffer(U): fp32
  iterate one(I, U) "SR" as (i, u):
    init:
      S[i] = 0.0
    S[i] = S[i] + X[i, u]
  iterate all(I, U) "RS" as (a, b):
    P[b] = P[b] + X[a, b]
)");
  expect_refused(two, "lower()\nreverse_compute_at(all, one.u)\nf = fuse(one.i, one.u)\n",
                 "init of block 'one' runs before one of them and within the other", {{"m", 3}});
  expect_same_results(two, "lower()\nreverse_compute_at(all, one.u)\n", {{"m", 3}});
  expect_same_results(program, "", {{"m", 3}});
}

// Init that runs before a reduction passes what ran before it at other points, and beside the reduction.
TEST(Merging, InitDoesNotOvertakeWhatItMeets) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  S = buffer(I): fp32
  Z = buffer(I, U): fp32
  iterate old(I, U) "SS" as (a, b):
    Z[a, b] = S[a]
  iterate sum(I, U) "SR" as (i, u):
    init:
      S[i] = 0.0
    S[i] = S[i] + X[i, u]
)");
  const Set set = {{"m", 3}};
  expect_same_results(program, "lower()\ncompute_at(old, sum.i)\n", set);
  expect_refused(program, "lower()\ncompute_at(old, sum.u)\n", "'S' is complete only after all iterations of 'u'", set);
  expect_refused(program, "lower()\nreverse_compute_at(sum, old.b)\n",
                 "'S' is complete only after all iterations of 'b'", set);
  expect_refused(program, "lower()\ncompute_at(old, sum.i)\ndecompose_reduction(sum.i)\n", "init would run before S[i]",
                 set);
}

// A loop of partial sums is spatial, which it may not be for a block beside it.
TEST(Merging, InitOfAnotherBlockStaysBeforeTheReduction) {
  const std::string program = R"(program p(m):
  I = dense_fixed(4)
  U = dense_fixed(m)
  X = buffer(I, U): fp32
  S = buffer(I): fp32
  T = buffer(U): fp32
  iterate both(I) "R" as (i):
    iterate sum(U) "R" as (u):
      S[3] = S[3] + X[i, u]
    iterate other(U) "S" as (w):
      init:
        T[w] = 0.0
      T[w] = T[w] + X[i, w]
)";
  expect_refused(program, "lower()\nrfactor(sum.i, register)\n",
                 "it is a reduction of block 'other', too, whose init runs before it", {{"m", 5}});
  expect_same_results(program, "lower()\ndecompose_reduction(other.i)\nrfactor(sum.i, register)\n", {{"m", 5}});
}

// What is needed of another point is there where that has run.
TEST(Merging, APointMayNeedEarlierOnes) {
  const auto program = [](const std::string& value) {
    return fmt::format(R"(program p(m):
  I = dense_fixed(m)
  X = buffer(I): fp32
  T = buffer(I): fp32
  Z = buffer(I): fp32
  iterate one(I) "S" as (a):
    T[a] = X[a]
  iterate two(I) "S" as (i):
    Z[i] = {}
)",
                       value);
  };
  const Set set = {{"m", 5}};
  for (const char* line : {"compute_at(one, two.i)\n", "reverse_compute_at(two, one.a)\n"}) {
    expect_same_results(program("T[i]"), std::string("lower()\n") + line, set);
    expect_same_results(program("T[i - 1]"), std::string("lower()\n") + line, set);
    expect_refused(program("T[i + 1]"), std::string("lower()\n") + line, "'T' is complete only after all iterations of",
                   set);
    expect_refused(program("T[0] + T[4 - i]"), std::string("lower()\n") + line,
                   "'T' is complete only after all iterations of", set);
  }
}

// The memory of partial sums begins behind the loop that its first block would go back to.
TEST(Merging, LeavesBlocksWhereTheirMemoryIs) {
  const std::string program = program_of_rows(R"(  Y = buffer(I): fp32
  iterate sums(U, I) "RS" as (u, i):
    Y[i] = Y[i] + 1.0
)");
  expect_refused(program,
                 "lower()\nrfactor(sums.u, global)\nrfactor(sums_sum.u_sum, register)\n"
                 "reverse_compute_at(sums_sum_zero, sums.u)\n",
                 "it needs 'Y_partial_1', which is kept from behind the loop on", {{"m", 1}});
}

// Rows of two loops over the same axis are read from one array.
TEST(MaterialiseRows, MakesOneArrayForAnAxis) {
  std::string program = kSddmm;
  program += "  iterate other(I, J) \"SS\" as (i, j):\n    O[i, j] = O[i, j] * real(i)\n";
  const std::string text = stage2_of(program,
                                     "sparse_fuse(sddmm, I, J)\nsparse_fuse(other, I, J)\nlower()\n"
                                     "materialise_rows(sddmm.i_j)\nmaterialise_rows(other.i_j)\n");
  expect_contains(text, "let i = J_rows[i_j]", "first");
  expect_contains(text.substr(text.find("block sddmm")), "let i = J_rows[i_j]", "second");
}

// A reduction of one iteration is a reduction all the same: init runs where its conditions fail, too.
TEST(Init, RunsBeforeReductionsOfOneIteration) {
  for (const auto& [axes, kinds, names] : {std::tuple("O, K, L", "RSR", "o, k, l"),
                                           {"K, O, L", "SRR", "k, o, l"},
                                           {"K, L, O", "SRR", "k, l, o"},
                                           {"L, O, K", "RRS", "l, o, k"}})
    for (const char* condition : {"0 < o - 2", "o < k", "X[o] < 0.0", "l < o + k", "0 < o - 2, l < 3"}) {
      const std::string program = fmt::format(R"(program p(n):
  O = dense_fixed(1)
  K = dense_fixed(3)
  L = dense_fixed(n)
  X = buffer(L): fp32
  Y = buffer(K): fp32
  iterate it({}) "{}" as ({}) where {}:
    init:
      Y[k] = 9.0
    Y[k] = Y[k] + X[l]
)",
                                              axes, kinds, names, condition);
      expect_same_results(program, "lower()\n", {{"n", 4}});
    }
}

}  // namespace
}  // namespace weft::sparse::test::sound_schedules
