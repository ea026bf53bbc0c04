// Each condition of what makes memory, and of what moves around it, alone: what is made, when it is read first, and
// what is refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/stage2/primitives.h"
#include "tests/sparse/sound_schedules.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::memory {
namespace {

using sound_schedules::expect_refused;
using sound_schedules::kSpmm;
using sound_schedules::Set;
using sound_schedules::stage2_of;

const Set kEight = {{"feat", 8}};

// ---- cache_read

// Whatever its loops are, and are told to do, a copy is made by serial loops.
TEST(CopiedFirst, ByLoopsThatDoNothingElse) {
  const std::string copy = "cache_read(csrmm.j, B, register)\n";
  const std::string plain = R"(      allocate B_local[2, 4]: fp32 in register
      for ko in range(2):
        for ki in range(4):
          block csrmm_fetch:
)";
  for (const char* lines : {"", "vectorize(ki)\n", "unroll(ko)\n", "annotate(ko, prefetch, 3)\n",
                            "bind(ko, threadIdx.x)\n", "bind(ki, threadIdx.y)\n"}) {
    const std::string schedule = std::string("lower()\nko, ki = split(csrmm.k, 4)\n") + lines + copy;
    expect_contains(stage2_of(kSpmm, schedule, kEight), plain, lines);
    expect_same_results(kSpmm, schedule, kEight);
  }
}

// An element that may be absent is read as 0, and copied as that; where it is read otherwise, too, only if it is there.
TEST(CopiedFirst, AsWhatIsReadWhereItMayBeAbsent) {
  const auto program = [](const char* rest) {
    return program_of_rows(fmt::format(R"(  At = buffer(I): int32
  X = buffer(U): fp32
  Z = buffer(I): fp32
  iterate it(I) "S" as (i):
    Z[i] = X[At[i]] * 2.0{}
)",
                                       rest));
  };
  const char* const schedule = "lower()\ncache_read(it.i, X, register)\n";
  const std::string copied = stage2_of(program(""), schedule);
  expect_contains(copied, "X_local[0] = select(At[i] >= 0 and At[i] < 8, X[At[i]], 0.0)", "the copy");
  expect_contains(copied, "Z[i] = X_local[0] * 2.0", "what reads it");
  const char* const twice = " + select(At[i] > 2 and At[i] < 8, X[At[i]], 1.0)";
  EXPECT_EQ(stage2_of(program(twice), schedule).find("X_local[0] = select"), std::string::npos);
}

TEST(CopiedFirst, IntoMemoryThatHoldsAnyOfItsValues) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): bf16
  W = buffer(I): int32
  Z = buffer(I, U): fp32
  iterate it(I, U) "SS" as (i, u):
    Z[i, u] = X[i, u] * real(W[i])
)");
  expect_contains(stage2_of(program, "lower()\ncache_read(it.i, X, register)\n"), "allocate X_local[8]: fp32", "bf16");
  expect_contains(stage2_of(program, "lower()\ncache_read(it.i, W, shared)\n"), "allocate W_local[1]: int32 in shared",
                  "int32");
  // An array of an axis has its axis' width.
  const std::string places = "lower()\ncache_read(csrmm.j, j_indices, register)\n";
  const std::string wide = replaced(kSpmm, "indices=j_indices)", "indices=j_indices): int64");
  expect_contains(stage2_of(kSpmm, places), "allocate j_indices_local[1]: int32 in register", "indices");
  expect_contains(stage2_of(wide, places), "allocate j_indices_local[1]: int64 in register", "wide indices");
  expect_same_results(kSpmm, places, kEight);
  expect_same_results(wide, places, kEight);
}

// A condition that says nothing of the place is no reason to copy less, nor one to refuse. One that may be what keeps
// it inside is.
TEST(CopiedFirst, WithoutConditionsOfOtherLoops) {
  const auto program = [](const char* element) {
    return fmt::format(R"(program p(m, n):
  I = dense_fixed(m)
  S = dense_fixed(8)
  K = dense_fixed(4)
  N = dense_fixed(n)
  R = buffer(I): int32
  W = buffer(N, K): fp32
  Z = buffer(I, S, K): fp32
  iterate it(I, S, K) "SSS" as (i, s, k) where s < m:
    Z[i, s, k] = {}
)",
                       element);
  };
  const std::string copy = "lower()\ncache_read(it.i, W, shared)\n", loaded = program("W[R[i], k] * real(s)");
  const std::string text = stage2_of(loaded, copy);
  expect_contains(text, "        W_local[k] = select(R[i] >= 0 and R[i] < n, W[R[i], k], 0.0)\n", "copied");
  EXPECT_LT(text.find("block it_fetch"), text.find("if s < m")) << text;
  expect_same_results(loaded, copy, {{"m", 3}, {"n", 5}});
  // What the first iteration asks keeps the place inside; what only a later one does is refused.
  const auto asked = [&](const char* condition) {
    return replaced(program("W[i, k] * real(s)"), "where s < m", condition);
  };
  expect_contains(stage2_of(asked("where s + i < n"), copy),
                  "    for k in range(4):\n      if i < n:\n        block it_fetch", "asked");
  expect_same_results(asked("where s + i < n"), copy, {{"m", 9}, {"n", 5}});
  expect_refused(asked("where i < n + s - 7"), copy, "W[i, k] would be accessed where i < n + s - 7 does not hold");
}

// Iterations of a loop that split has made hold pieces of a temporary buffer.
TEST(Memory, OfALoopOverPiecesIsAPiece) {
  const std::string program = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  P = temporary(I, J): fp32
  Z = buffer(I, N): fp32
  iterate twice(I, J) "SS" as (i, j):
    P[i, j] = A[i, j] * 2.0
  iterate keep(I, J) "SS" as (i, j):
    Z[i, j] = P[i, j]
)";
  const std::string split = "lower()\nto, ti = split(twice.j, 4)\nko, ki = split(keep.j, 4)\n";
  const std::string kept = split + "compute_at(twice, ko)\nset_scope(P, register)\n";
  const std::string text = stage2_of(program, kept);
  expect_contains(text, "allocate P_local[4]: fp32 in register", "a piece");
  expect_contains(text, "P_local[ti] = A[i, ko * 4 + ti] * 2.0", "stored");
  expect_contains(text, "= P_local[ki]", "loaded");
  expect_same_results(program, kept, {});
  // Two pieces in each other.
  const std::string nested = split +
                             "too, toi = split(twice.ti, 2)\nkoo, koi = split(keep.ki, 2)\ncompute_at(twice, koo)\n"
                             "set_scope(P, register)\n";
  expect_contains(stage2_of(program, nested), "allocate P_local[2]: fp32 in register", "pieces of pieces");
  expect_same_results(program, nested, {});
  // Places that reach into another iteration's, or are pieces of two lengths, are all in one memory.
  const auto kept_by = [](const char* stored, const char* loaded) {
    return fmt::format(R"(program p(m):
  I = dense_fixed(4)
  U = dense_fixed(4)
  W = dense_fixed(18)
  X = buffer(I, U): fp32
  P = temporary(W): fp32
  Z = buffer(I, U): fp32
  iterate it(I, U) "SS" as (i, u):
    P[{}] = X[i, u]
    Z[i, u] = P[{}] * 2.0
)",
                       stored, loaded);
  };
  const std::string whole = "lower()\nset_scope(P, register)\n";
  expect_contains(stage2_of(kept_by("i * 4 + u", "i * 4 + u"), whole), "allocate P_local[1]", "an element");
  for (const char* place : {"i * 2 + u", "i * 4 + u + 2", "i * 2 + u % 2"}) {
    expect_contains(stage2_of(kept_by("i * 4 + u", place), whole), "P_local[i * 4 + u] = X[i, u]", place);
    expect_contains(stage2_of(kept_by(place, "i * 4 + u"), whole), "= P_local[i * 4 + u] * 2.0", place);
  }
  const std::string before =
      replaced(kept_by("i * 4 + u - 1", "i * 4 + u - 1"), "as (i, u)", "as (i, u) where i * 4 + u > 0");
  expect_contains(stage2_of(before, whole), "P_local[i * 4 + u - 1] = X[i, u]", "reaches into the piece before");
  // What reaches into the next piece leaves all of them in one memory.
  const std::string next = replaced(program, "= P[i, j]", "= P[i, j] + P[i, j + 1]");
  expect_refused(next, "lower()\ncompute_at(twice, keep.i)\nset_scope(P, register)\n", "has no literal length");
}

TEST(CopiedFirst, NothingThatIsSearched) {
  const std::string program = R"(program p(m, n, nnz, all):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  L = sparse_variable(I, n, all, indptr=l_indptr, indices=l_indices)
  T = buffer(I, J): fp32
  Z = buffer(I, L): fp32
  iterate it(I, L) "SS" as (a, b):
    Z[a, b] = T[a, b]
)";
  expect_refused(program, "lower()\ncache_read(it.b, j_indices, register)\n",
                 "block 'it' searches in 'j_indices'; one element is kept");
}

// A division is said as the program says it.
TEST(CopiedFirst, NoPlaceThatDividesByWhatMayBe0) {
  const std::string program = R"(program p(m, q):
  I = dense_fixed(m)
  A = buffer(I): fp32
  Y = buffer(I): fp32
  iterate it(I) "S" as (i):
    Y[i] = A[(i + 1) * (i // q)]
)";
  const std::string says = refusal([&] { stage2_of(program, "lower()\ncache_read(it.i, A, register)\n"); });
  expect_contains(says, "may divide by 0, also where nothing is read: A[(i + 1) * (i // q)]", "words");
  EXPECT_EQ(says.find("checked"), std::string::npos) << says;
}

// A copy is made wherever something is read from it: by init of a block within, too.
TEST(CopiedFirst, WhereInitReadsItAndTheRestMayNot) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  Y = buffer(I, U): fp32
  iterate it(I, U) "SS" as (i, u):
    init:
      Y[i, u] = X[i, 0]
    Y[i, u] = Y[i, u] + select(i > 1, X[i, 0], 1.0)
)");
  const std::string schedule = "lower()\nb = blockize(it.u)\ncache_read(b.i, X, register)\n";
  expect_same_results(program, schedule, {{"m", 4}});
  expect_contains(stage2_of(program, schedule), "    block b_fetch:\n", "no condition around it");
}

// What an expression evaluates only where a condition fails is copied only there.
TEST(CopiedFirst, WhereAConditionFails) {
  const auto program = [](const std::string& value) {
    return program_of_rows(fmt::format(R"(  X = buffer(I, U): fp32
  Y = buffer(I, U): fp32
  iterate it(I, U) "SS" as (i, u):
    Y[i, u] = {}
)",
                                       value));
  };
  for (const char* value : {"select(i + 1 >= m, 0.0, X[i + 1, u])", "select(i + 1 >= m or X[i + 1, u] > 0.0, 1.0, 2.0)",
                            "select(i + 1 < m and X[i + 1, u] > 0.0, 1.0, 2.0)"}) {
    const std::string schedule = "lower()\ncache_read(it.i, X, register)\n";
    expect_same_results(program(value), schedule, {{"m", 4}});
    const std::string text = stage2_of(program(value), schedule);
    EXPECT_LT(text.find("      if "), text.find("block it_fetch:")) << text;
  }
}

// ---- cache_write

TEST(Kept, IsWhatLoopsOfLiteralsWrite) {
  expect_refused(kSpmm, "lower()\ncache_write(csrmm.i, register)\n",
                 "the extent feat of 'k' is no literal; split it, and keep what the inner loop writes");
}

// Without init a sum may be kept for one iteration of its reduction: it is read first, and written back.
TEST(Kept, IsReadFirstWhereItIsNotSet) {
  const auto program = [](const char* kinds, const std::string& lines) {
    return program_of_rows(fmt::format(R"(  X = buffer(I, U): fp32
  Y = buffer(I): fp32
  Z = buffer(I, U): fp32
  iterate it(I, U) "{}" as (i, u):
{})",
                                       kinds, lines));
  };
  const auto reads = [](const std::string& text, const std::string& loop) {
    const std::string schedule = fmt::format("lower()\ncache_write(it.{}, register)\n", loop);
    expect_same_results(text, schedule, {{"m", 3}});
    return stage2_of(text, schedule).find("block it_read:") != std::string::npos;
  };
  const std::string init = "    init:\n      ";
  EXPECT_TRUE(reads(program("SR", "    Y[i] = Y[i] + X[i, u]\n"), "u"));
  EXPECT_TRUE(reads(program("SR", "    Y[i] = Y[i] + X[i, u]\n"), "i"));
  EXPECT_TRUE(reads(program("SR", "    Y[i] = X[i, u]\n"), "i"));
  EXPECT_TRUE(reads(program("SR", init + "Y[i] = Y[i] * 2.0\n    Y[i] = Y[i] + X[i, u]\n"), "i"));
  EXPECT_FALSE(reads(program("SR", init + "Y[i] = 2.0\n    Y[i] = Y[i] + X[i, u]\n"), "i"));
  EXPECT_FALSE(reads(program("SS", "    Z[i, u] = X[i, u]\n"), "i"));
  EXPECT_FALSE(reads(program("SS", "    Z[i, u] = X[i, u]\n"), "u"));
  EXPECT_TRUE(reads(program("SS", "    Z[i, u] = Z[i, u] + X[i, u]\n"), "i"));
  // By init alone.
  EXPECT_TRUE(reads(program("SS", init + "Z[i, u] = Z[i, u] + 1.0\n    Z[i, u] = X[i, u]\n"), "i"));
  EXPECT_FALSE(reads(program("SS", init + "Z[i, u] = 1.0\n    Z[i, u] = Z[i, u] + X[i, u]\n"), "i"));
  expect_refused(program("SR", init + "Y[i] = 0.0\n    Y[i] = Y[i] + X[i, u]\n"),
                 "lower()\ncache_write(it.u, register)\n",
                 "loop 'u' is a reduction; what is added up has to be kept around all of it");
}

Stage2 stage_of(const std::string& nest) {
  return parse_stage2(fmt::format(R"(stage2 p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  T = buffer(I): int32
  X = buffer(I, N): fp32
  Z = buffer(I, N): fp32
{})",
                                  nest));
}

// Whether it is read changes within the loop.
TEST(CopiedFirst, NothingWhoseConditionIsSetWithinTheLoop) {
  const std::string program = program_of_rows(R"(  V = buffer(U): int32
  X = buffer(I, U): fp32
  Z = buffer(U): fp32
  iterate it(I, U) "RS" as (i, u):
    Z[u] = Z[u] + select(V[u] > 0, X[i, u], 0.0)
    V[u] = 2
)");
  expect_refused(program, "lower()\ncache_read(it.i, X, register)\n",
                 "where 'X' is read depends on 'V', which is set within the loop");
}

// What says where it is read changes within the loop, loaded or searched.
// A condition that each of the loop's iterations asks anew.
TEST(CopiedFirst, NothingWhoseConditionOfTheLoopIsSetWithinIt) {
  expect_refused(R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  S = buffer(I): fp32
  X = buffer(I, K): fp32
  iterate it(I, K) "SR" as (i, k) where S[i] < 3.0:
    S[i] = S[i] + X[i, k]
)",
                 "lower()\ncache_read(it.i, X, register)\n",
                 "where 'X' is read depends on 'S', which is set within the loop");
}

TEST(CopiedFirst, NothingWhosePlaceIsSetWithinTheLoop) {
  for (const char* place : {"T[0]", "find(T[0], m, i)"}) {
    Stage2 stage = stage_of(fmt::format(R"(  for i in range(m):
    T[i] = 1
    block b:
      X[i, 0] = Z[{}, 0]
)",
                                        place));
    expect_contains(refusal([&] { cache_read(stage, "b.i", "Z", loop::Scope::registers); }),
                    "where 'Z' is read depends on 'T', which is set within the loop", place);
  }
}

// What its place is made of is not known where it is copied from and to.
TEST(Kept, IsAtNoPlaceThatIsSetWithinTheBlock) {
  Stage2 stage = stage_of(R"(  for i in range(m):
    for u in range(4):
      block b:
        let a = u
        X[i, a] = 1.0
)");
  expect_contains(refusal([&] { cache_write(stage, "b.i", loop::Scope::registers); }),
                  "cache_write(b.i): 'X' is written at 'a', which is set within the block", "let");
}

// ---- reorder

TEST(Reordered, AreLoopsOfOneNest) {
  Stage2 stage = stage_of(R"(  for i in range(m):
    for u in range(4):
      block a:
        X[i, u] = 1.0
  for i in range(m):
    for u in range(4):
      block b:
        X[i, u] = 2.0
)");
  expect_contains(refusal([&] {
                    reorder(stage, {"a.i", "b.u"});
                  }),
                  "reorder(a.i, b.u): 'b.u' is of another nest than 'a.i'", "nests");
  expect_contains(refusal([&] { reorder(stage, {"a.i"}); }), "reorder(a.i): two loops or more are needed", "one");
}

// A condition that stood within a loop keeps nothing inside that its extent loads.
TEST(Reordered, LoopsNeedNoConditionThatStoodWithinThem) {
  Stage2 stage = stage_of(R"(  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      if i + j < m:
        for u in range(4):
          block b:
            X[i + j, u] = 1.0
)");
  reorder(stage, {"b.u", "b.j"});
  expect_contains(to_text(stage), R"(    for u in range(4):
      for j in range(j_indptr[i + 1] - j_indptr[i]):
        if i + j < m:
)",
                  "the condition stays within");
}

}  // namespace
}  // namespace weft::sparse::test::memory
