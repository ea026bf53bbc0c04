// Which iterations of loops may access one element: each rule of the analysis, and what primitives make of it.
#include "sparse/stage2/dependence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

constexpr auto kBefore = Direction::before, kSame = Direction::same, kAfter = Direction::after;

// A stage whose body is one nest.
Stage2 stage_of(const std::string& nest) {
  return parse_stage2(fmt::format(R"(stage2 p(m, n, nnz, w, rows):
  O = dense_fixed(1)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  R = sparse_fixed(O, m, rows, indices=r_indices)
  F = sparse_fixed(I, n, 4, indices=f_indices)
  N = dense_fixed(n)
  T = buffer(I): int32
  S = buffer(N): fp32
  X = buffer(I, N): fp32
  A = buffer(I, J): fp32
{})",
                                  nest));
}

// Whether what the nest stores first, of the buffer if one is named, may meet its last access of the same buffer.
bool meet(const std::string& nest, const Directions& directions, const std::string& buffer = "") {
  const Stage2 stage = stage_of(nest);
  const Dependences found(stage, {}, {&stage.body[0]});
  const auto& all = found.accesses();
  const auto first = std::find_if(all.begin(), all.end(), [&](const MemoryAccess& access) {
    return access.writes && (buffer.empty() || access.buffer == buffer);
  });
  const auto last = std::find_if(all.begin(), all.end(), [&](const MemoryAccess& access) {
    return !access.writes && access.buffer == first->buffer;
  });
  return found.may_meet(*first, last == all.end() ? *first : *last, directions);
}

constexpr const char* kSkewed = R"(  for i in range(m):
    for j in range(n):
      X[i, j] = X[i - 1, j + 1] * 2.0
)";

TEST(Dependence, FollowsFromTheDistanceInEachLoop) {
  EXPECT_TRUE(meet(kSkewed, {}));
  EXPECT_TRUE(meet(kSkewed, {{"i", kBefore}, {"j", kAfter}}));
  for (const Direction j : {kBefore, kSame, kAfter}) {
    EXPECT_FALSE(meet(kSkewed, {{"i", kSame}, {"j", j}}));
    EXPECT_FALSE(meet(kSkewed, {{"i", kAfter}, {"j", j}}));
  }
  EXPECT_FALSE(meet(kSkewed, {{"i", kBefore}, {"j", kBefore}}));
  EXPECT_FALSE(meet(kSkewed, {{"j", kSame}}));
}

// One loop around a store of one index.
bool twice(const std::string& index, const std::string& extent = "n", const std::string& inner = "") {
  const bool has_inner = !inner.empty();
  return meet(fmt::format("  for v in range({}):\n{}{}    S[{}] = 1.0\n", extent,
                          has_inner ? "    for u in range(" + inner + "):\n" : "", has_inner ? "  " : "", index),
              {{"v", kBefore}});
}

TEST(Dependence, SumsAreComparedByTheBoundsOfTheirTerms) {
  EXPECT_FALSE(twice("v"));
  EXPECT_FALSE(twice("n - v"));
  EXPECT_FALSE(twice("v * 4 + u", "n", "4"));
  EXPECT_TRUE(twice("v * 4 + u", "n", "5"));
  EXPECT_TRUE(twice("v + u", "n", "2"));
  EXPECT_FALSE(twice("v + u * 8", "8", "n"));
  EXPECT_TRUE(twice("v + u * 8", "9", "n"));
  EXPECT_TRUE(twice("3"));
  EXPECT_TRUE(twice("v // 2"));
  EXPECT_TRUE(twice("v % 2"));
  EXPECT_TRUE(twice("max(v, 2)"));
  EXPECT_TRUE(twice("T[v]"));
  // No term of 2 bridges 1.
  EXPECT_FALSE(meet("  for v in range(n):\n    S[v * 2] = S[v * 2 + 1]\n", {}));
  EXPECT_TRUE(meet("  for v in range(n):\n    S[v * 2] = S[v * 2 + 4]\n", {}));
  // As far apart as the loop is long.
  EXPECT_FALSE(meet("  for v in range(8):\n    S[v] = S[v + 8]\n", {}));
  EXPECT_TRUE(meet("  for v in range(9):\n    S[v] = S[v + 8]\n", {}));
  EXPECT_FALSE(meet("  for v in range(n):\n    if v < 8:\n      S[v] = S[v + 8]\n", {}));
}

// Where equal terms are gone, what is left is as far apart as it was, and to the same side.
TEST(Dependence, SumsBesideEqualTermsKeepTheirDistance) {
  const auto meets = [](const char* stored, const char* loaded, const Directions& directions) {
    return meet(fmt::format(R"(  for i in range(m):
    for u in range(n):
      for r in range(5):
        X[T[i], T[i] + u * 8 + r{}] = X[T[i], T[i] + u * 8 + r{}] * 2.0
)",
                            stored, loaded),
                directions);
  };
  // One of u and two of r further on.
  EXPECT_TRUE(meets(" + 10", "", {{"u", kBefore}, {"r", kBefore}}));
  EXPECT_TRUE(meets("", " + 10", {{"u", kAfter}, {"r", kAfter}}));
  EXPECT_FALSE(meets(" + 10", "", {{"u", kSame}}));
  EXPECT_FALSE(meets(" + 1", "", {{"r", kAfter}}));
  EXPECT_FALSE(meets("", " + 1", {{"r", kBefore}}));
}

TEST(Dependence, FusedLoopsAreOneOfBothParts) {
  const auto fused = [](const std::string& indices) {
    return meet(fmt::format("  for v in range(m * n):\n    for u in range(4):\n      X[{}] = 1.0\n", indices),
                {{"v", kBefore}});
  };
  EXPECT_FALSE(fused("v // n, v % n"));
  EXPECT_FALSE(fused("v % n, v // n"));
  EXPECT_FALSE(fused("v // n, v % n * 4 + u"));
  EXPECT_FALSE(fused("v // n * 4 + u, v % n"));
  EXPECT_TRUE(fused("v // n, v % w"));
  EXPECT_TRUE(fused("v // n, v // n"));
  EXPECT_TRUE(fused("v // n, v % n * 3 + u"));
  EXPECT_TRUE(fused("v // n, v % n + u"));
  EXPECT_TRUE(fused("v // n, u"));
  // And split after that.
  EXPECT_FALSE(meet(R"(  for a in range((m * n + 3) // 4):
    for b in range(4):
      if a * 4 + b < m * n:
        X[(a * 4 + b) // n, (a * 4 + b) % n] = 1.0
)",
                    {{"a", kBefore}}));
}

TEST(Dependence, IndicesOfAnAxisAreUniqueBelowOneParent) {
  const std::string row = "  for i in range(m):\n    for j in range(j_indptr[i + 1] - j_indptr[i]):\n      S[";
  EXPECT_FALSE(meet(row + "j_indices[i, j]] = 1.0\n", {{"i", kSame}, {"j", kBefore}}));
  EXPECT_TRUE(meet(row + "j_indices[i, j]] = 1.0\n", {{"i", kBefore}}));
  EXPECT_TRUE(meet(row + "j_indices[i, j // 2]] = 1.0\n", {{"i", kSame}, {"j", kBefore}}));
  EXPECT_TRUE(meet("  for i in range(m):\n    for j in range(4):\n      S[j_indices[i + j, 0]] = 1.0\n",
                   {{"i", kSame}, {"j", kBefore}}));
  // In blocks of 4, of which another loop writes 4.
  const std::string blocks = R"(  for i in range(rows):
    for u in range(LOOP):
      if r_indices[0, i] < m:
        X[r_indices[0, i] * 4 + u, 0] = 1.0
)";
  const auto with = [&](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_FALSE(meet(with(blocks, "LOOP", "4"), {{"i", kBefore}}));
  EXPECT_TRUE(meet(with(blocks, "LOOP", "5"), {{"i", kBefore}}));
  // Padding has one index again and again.
  EXPECT_TRUE(meet("  for i in range(rows):\n    X[r_indices[0, i], 0] = 1.0\n", {{"i", kBefore}}));
  EXPECT_FALSE(meet("  for i in range(rows):\n    if r_indices[0, i] < m:\n      X[r_indices[0, i], 0] = 1.0\n",
                    {{"i", kBefore}}));
}

// Memory that holds nothing but a copy of an array is as good as the array.
TEST(Dependence, CopiesOfIndicesAreUniqueWhereIndicesAre) {
  const auto row = [](const std::string& statements, const Directions& directions) {
    const std::string nest =
        "  for i in range(m):\n    for j in range(j_indptr[i + 1] - j_indptr[i]):\n"
        "      allocate c[1]: int64 in register\n";
    return meet(nest + statements, directions, "S");
  };
  const std::string copy = "      block fetch:\n        c[0] = j_indices[i, j]\n", store = "      S[c[0]] = 1.0\n";
  const Directions next = {{"i", kSame}, {"j", kBefore}};
  EXPECT_FALSE(row(copy + store, next));
  EXPECT_TRUE(row(copy + store, {{"i", kBefore}}));
  EXPECT_TRUE(row("      c[0] = j_indices[i, 0]\n" + store, next));
  EXPECT_TRUE(row(copy + "      c[0] = j_indices[i, 0]\n" + store, next));
  EXPECT_TRUE(row("      if i < w:\n        c[0] = j_indices[i, j]\n" + store, next));
  EXPECT_FALSE(row("      if i < w:\n        c[0] = j_indices[i, j]\n      if i < w:\n  " + store, next));
  // Of an array that padding ends, around the loop that stores.
  const auto all = [](const std::string& extent, const std::string& padding) {
    return meet(fmt::format(R"(  for i in range(m):
    allocate c[4]: int64 in register
    for j in range({}):
      c[j] = f_indices[i, j]
    for j in range(4):
      if {} < n:
        S[c[j]] = 1.0
)",
                            extent, padding),
                {{"i", kSame}, {"j", kBefore}}, "S");
  };
  EXPECT_FALSE(all("4", "f_indices[i, j]"));
  EXPECT_FALSE(all("4", "c[j]"));
  EXPECT_TRUE(all("4", "j"));
  EXPECT_TRUE(all("3", "c[j]"));
}

// Memory that was filled outside of the loops that are asked about.
TEST(Dependence, CopiesAreKnownWithinTheLoopsBehindThem) {
  const Stage2 stage = stage_of(R"(  for i in range(m):
    allocate c[4]: int64 in register
    for j in range(4):
      c[j] = f_indices[i, j]
    for j in range(4):
      if c[j] < n:
        S[c[j]] = 1.0
)");
  const Stmt &outer = stage.body[0], &inner = outer.body[2];
  EXPECT_EQ(Dependences(stage, {&outer, &outer.body[0]}, {&inner}).problem_of_sharing("j"), "");
}

TEST(Dependence, AFusedAxisIsOneOfARowAndAPlaceInIt) {
  const auto fused = [](const std::string& row, const std::string& place) {
    return meet(fmt::format("  for v in range(nnz):\n    let i = {}\n    A[i, {}] = 1.0\n", row, place),
                {{"v", kBefore}});
  };
  const std::string row = "upper_bound(j_indptr[0], m + 1, v) - 1";
  EXPECT_FALSE(fused(row, "v - j_indptr[i]"));
  EXPECT_TRUE(fused(row, "v - j_indptr[v]"));
  EXPECT_TRUE(fused(row, "0"));
  EXPECT_FALSE(fused("T[v]", "v - j_indptr[i]"));
}

// As those are split, whichever of the parts is the outer loop.
TEST(Dependence, AFusedAxisIsOneOfTheMultipleAndTheRestThatItIs) {
  const auto split = [](int factor) {
    return meet(fmt::format("  for r in range(8):\n    for e in range(4):\n      if e * {0} + r < nnz:\n"
                            "        let i = T[e * {0} + r]\n        A[i, e * {0} + r - j_indptr[i]] = 1.0\n",
                            factor),
                {{"r", kBefore}});
  };
  EXPECT_FALSE(split(8));
  EXPECT_FALSE(split(9));
  EXPECT_TRUE(split(7));
}

TEST(Dependence, WhatTheStatementsStoreIsUnknownWhereItIsLoaded) {
  EXPECT_FALSE(meet("  for v in range(m):\n    S[T[0] + v] = S[T[0] - 1 - v]\n", {}));
  const Stage2 stage = stage_of("  for v in range(m):\n    S[T[0] + v] = S[T[0] - 1 - v]\n    T[v] = 1\n");
  const Dependences found(stage, {}, {&stage.body[0]});
  bool may = false;
  for (const MemoryAccess& a : found.accesses())
    for (const MemoryAccess& b : found.accesses())
      may |= a.buffer == "S" && b.buffer == "S" && a.writes != b.writes && found.may_meet(a, b, {});
  EXPECT_TRUE(may);
}

TEST(Dependence, MemoryOfItsOwnIsNewInEveryIterationAroundIt) {
  const char* inside = "  for v in range(m):\n    allocate L[1]: fp32 in register\n    L[0] = 1.0\n    S[v] = L[0]\n";
  const Stage2 own = stage_of(inside);
  EXPECT_EQ(Dependences(own, {}, {&own.body[0]}).problem_of_sharing("v"), "");
  const char* outside =
      "  for v in range(m):\n    allocate L[1]: fp32 in register\n    for u in range(4):\n      L[0] = 1.0\n      X[v, "
      "u] "
      "= L[0]\n";
  const Stage2 around = stage_of(outside);
  EXPECT_EQ(Dependences(around, {}, {&around.body[0]}).problem_of_sharing("v"), "");
  EXPECT_EQ(Dependences(around, {}, {&around.body[0]}).problem_of_sharing("u"),
            "L[0] may be the same element in two of its iterations");
  // In one iteration loops behind it share it.
  const char* beside =
      "  for v in range(m):\n    allocate L[4]: fp32 in register\n    for u in range(4):\n      L[u] = 1.0\n"
      "    for k in range(4):\n      X[v, k] = L[k]\n";
  EXPECT_TRUE(meet(beside, {}, "L"));
  EXPECT_FALSE(meet(beside, {{"v", kBefore}}, "L"));
}

TEST(Dependence, UpdatesOfOneKindHaveNoOrder) {
  const auto op_of = [](const std::string& value) {
    const Stage2 stage = stage_of(fmt::format("  for v in range(m):\n    S[0] = {}\n", value));
    const std::optional<Update> update = update_of(stage.body[0].body[0]);
    return update ? std::optional(update->op) : std::nullopt;
  };
  for (const char* sum : {"S[0] + X[v, 0]", "X[v, 0] + S[0]", "S[0] - X[v, 0]", "S[0] + X[v, 0] - X[v, 1]"})
    EXPECT_EQ(op_of(sum), Op::add) << sum;
  EXPECT_EQ(op_of("max(S[0], X[v, 0])"), Op::maximum);
  EXPECT_EQ(op_of("min(X[v, 0], S[0])"), Op::minimum);
  EXPECT_EQ(op_of("S[0] * X[v, 0]"), Op::multiply);
  for (const char* none : {"X[v, 0] - S[0]", "X[v, 0] - 0.5 * S[0]", "S[0] + S[0]", "S[0] + S[1]", "S[0]", "X[v, 0]",
                           "S[1] + X[v, 0]", "S[0] / X[v, 0]", "exp(S[0])", "max(S[0], S[1])"})
    EXPECT_EQ(op_of(none), std::nullopt) << none;
}

// ---- what primitives make of it

std::string refused(const std::string& program, const std::string& schedule,
                    const std::map<std::string, int64_t>& set) {
  return refusal(
      [&] { compile(parse(program.c_str()), schedule, Device::cpu(), {.set = set, .stop_after = "generate"}); });
}

std::string dense(const std::string& statement, const std::string& kinds = "SS", const std::string& init = "") {
  return fmt::format(R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  X = buffer(I, J): fp32
  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  Q = buffer(J): fp32
  iterate it(I, J) "{}" as (i, j):
{}    {}
)",
                     kinds, init, statement);
}
const std::map<std::string, int64_t> kSizes = {{"m", 5}, {"n", 7}};

// A copy of indices changes nothing in what loops may be shared and exchanged.
TEST(Copies, OfIndicesLeaveLoopsAsTheyWere) {
  const auto scattered = [](const std::string& axis) {
    return fmt::format(R"(program p(m, n{}):
  I = dense_fixed(m)
  J = {}
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  Y = buffer(N): fp32
  iterate f(I, J) "RS" as (i, j):
    Y[j] = Y[j] * 0.5 + A[i, j]
)",
                       axis == kCsrAxis ? ", nnz" : "", axis);
  };
  const std::string csr = scattered(kCsrAxis);
  const std::string ell = scattered("sparse_fixed(I, n, 3, indices=j_indices)");
  const std::string within = "lower()\ncache_read(f.j, j_indices, register)\n";
  const std::string around = "lower()\ncache_read(f.i, j_indices, register)\n";
  const std::string bound = "bind(f.j, threadIdx.x)\n";
  expect_same_results(csr, within + bound, {});
  const std::vector<int32_t> indices{0, 2, 4, 1, 5, 5, 5, 5, 5, 0, 1, 2};  // 5: nothing
  const Structure threes = weft::sparse::ell(4, 5, 3, indices);
  for (const std::string& copy : {within, around}) {
    expect_same_results_on(threes, ell, copy + bound);
    expect_same_results_on(threes, ell, copy + "jo, ji = split(f.j, 2)\nbind(ji, threadIdx.x)\n");
  }
  expect_same_results_on(threes, ell, around + "cache_write(f.i, register)\n");
  // Rows of a list, whose indices are unique: the team shares them.
  const std::string rows = R"(program p(n, rows):
  O = dense_fixed(1)
  J = sparse_variable(O, n, rows, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(O, J): fp32
  Y = buffer(N): fp32
  iterate f(O, J) "RS" as (o, j):
    Y[j] = A[o, j]
)";
  const std::vector<int32_t> indptr{0, 3}, some{1, 2, 6};
  const Structure list = structure_of(
      {{.length = 1}, {.kind = AxisKind::sparse_variable, .length = 7, .indptr = indptr, .indices = some}});
  for (const char* line : {"parallel(f.j)\n", "bind(f.j, blockIdx.x)\n"})
    expect_same_results_on(list, rows, within + line);
  // Half of the index is that of the next one, too, copied or not.
  const std::string halves = R"(program p(n, rows):
  O = dense_fixed(1)
  J = sparse_variable(O, n, rows, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(O, J): fp32
  Y = buffer(N): fp32
  iterate f(O, J) "RS" as (o, j):
    Y[j // 2] = A[o, j]
)";
  for (const std::string& lines : {std::string("lower()\n"), within})
    expect_contains(refused(halves, lines + "parallel(f.j)\n", {}), "may be the same element in two of its iterations",
                    lines);
}

TEST(Order, LoopsThatCarryADependenceKeepTheirOrder) {
  const std::string skewed = dense("X[i, j] = X[i - 1, j + 1] * 2.0");
  expect_contains(refused(skewed, "lower()\nreorder(it.j, it.i)\n", kSizes),
                  "X[i, j] and X[i - 1, j + 1] may be one element at different points of i, j", "reorder");
  expect_contains(refused(skewed, "sparse_reorder(it, J, I)\n", kSizes),
                  "X[i, j] and X[i - 1, j + 1] may be one element at different points of i, j", "sparse_reorder");
  expect_contains(refused(skewed, "lower()\njo, ji = split(it.j, 4)\nreorder(jo, it.i)\n", kSizes),
                  "may be one element at different points of i, jo", "split");
  expect_contains(refused(skewed, "lower()\nio, ii = split(it.i, 2)\nreorder(it.j, ii)\n", kSizes),
                  "may be one element at different points of ii, j", "split");
  // As long as each element's own are in order, they may change.
  for (const char* statement : {"X[i, j] = X[i - 1, j - 1] * 2.0", "X[i, j] = X[i - 1, j] * 2.0",
                                "X[i, j] = X[i, j + 1] * 2.0", "X[i, j] = X[i + 1, j + 1] + A[i, j]"})
    for (const char* schedule :
         {"lower()\nreorder(it.j, it.i)\n", "sparse_reorder(it, J, I)\n",
          "lower()\njo, ji = split(it.j, 4)\nreorder(jo, it.i)\n",
          "lower()\nio, ii = split(it.i, 2)\nreorder(it.j, ii)\n",
          "lower()\nio, ii = split(it.i, 3)\njo, ji = split(it.j, 2)\nreorder(io, jo, ii, ji)\n"})
      expect_same_results(dense(statement), schedule, kSizes);
  // Order of both loops kept, one of them in pieces.
  expect_same_results(skewed, "lower()\nio, ii = split(it.i, 2)\njo, ji = split(it.j, 3)\n", kSizes);
  expect_same_results(skewed, "lower()\nf = fuse(it.i, it.j)\nfo, fi = split(f, 4)\n", kSizes);
}

TEST(Order, AReductionThatIsNoSumKeepsItsOrder) {
  const std::string program = R"(program p(m, n, l):
  I = dense_fixed(m)
  J = dense_fixed(n)
  L = dense_fixed(l)
  A = buffer(I, J, L): fp32
  Y = buffer(I): fp32
  iterate it(I, J, L) "SRR" as (i, j, k):
    Y[i] = VALUE
)";
  const auto with = [&](const std::string& value) {
    std::string text = program;
    return text.replace(text.find("VALUE"), 5, value);
  };
  const std::map<std::string, int64_t> set = {{"m", 3}, {"n", 4}, {"l", 5}};
  for (const char* value : {"A[i, j, k] - 0.5 * Y[i]", "A[i, j, k]", "Y[i] * 0.5 + A[i, j, k]", "Y[i] / A[i, j, k]"}) {
    expect_contains(refused(with(value), "lower()\nreorder(it.k, it.j)\n", set),
                    "Y[i] may be one element at several points of j, k, which would run in another order", value);
    expect_contains(refused(with(value), "sparse_reorder(it, I, L, J)\n", set), "Y[i] may be one element", value);
    // What stays outside or inside of both is no matter.
    expect_same_results(with(value), "lower()\nreorder(it.j, it.i)\n", set);
    expect_same_results(with(value), "sparse_reorder(it, J, L, I)\n", set);
  }
  for (const char* value : {"Y[i] + A[i, j, k]", "Y[i] - A[i, j, k]", "max(Y[i], A[i, j, k])", "min(A[i, j, k], Y[i])",
                            "A[i, j, k] * Y[i]"})
    expect_same_results(with(value), "lower()\nreorder(it.k, it.j, it.i)\n", set);
}

// Updates of two kinds are in an order, though either alone is in none.
TEST(Order, UpdatesOfTwoKindsKeepTheirOrder) {
  const std::string both = dense("Y[i] = Y[i] + A[i, j]\n    Y[i] = max(Y[i], X[i, j])", "SR");
  const std::string wider = R"(program p(m, n, l):
  I = dense_fixed(m)
  J = dense_fixed(n)
  L = dense_fixed(l)
  A = buffer(J, L): fp32
  Y = buffer(I): fp32
  iterate it(I, J, L) "SRR" as (i, j, k):
    Y[i] = Y[i] + A[j, k]
    Y[i] = max(Y[i], A[j, k])
)";
  expect_contains(refused(wider, "lower()\nreorder(it.k, it.j)\n", {{"m", 2}, {"n", 3}, {"l", 4}}),
                  "Y[i] may be one element at several points of j, k", "two kinds");
  expect_same_results(both, "lower()\nreorder(it.j, it.i)\n", kSizes);
}

// Init is there before any of the body, whatever the body stores.
TEST(Order, InitRunsBeforeTheBody) {
  const std::string carried = R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  A = buffer(I, J): fp32
  W = buffer(I): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j):
    init:
      Y[i] = W[i - 1]
    Y[i] = Y[i] + A[i, j]
    W[i] = 2.0 * A[i, j]
)";
  for (const char* schedule : {"", "lower()\nio, ii = split(it.i, 2)\n", "lower()\nreorder(it.j, it.i)\n"})
    expect_same_results(carried, schedule, kSizes);
  const std::string plain = dense("Y[i] = Y[i] + A[i, j]", "SR", "    init:\n      Y[i] = 1.0\n");
  for (const char* schedule :
       {"", "lower()\nreorder(it.j, it.i)\n", "lower()\ndecompose_reduction(it.i)\n", "sparse_reorder(it, J, I)\n",
        "lower()\nio, ii = split(it.i, 2)\nreorder(it.j, ii)\ndecompose_reduction(it.j)\n"})
    expect_same_results(plain, schedule, kSizes);
}

// What a condition of a reduction allows, init does not have.
TEST(Order, InitIsAskedWithoutConditionsOfReductions) {
  const std::string where = R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate it(I, J) "SR" as (i, j) where i + 1 + j < m:
    init:
      Y[i + 1] = 0.0
    Y[i + 1] = Y[i + 1] + A[i, j]
)";
  const std::string text =
      compile(parse(where.c_str()), "", Device::cpu(), {.stop_after = "schedule stage II"}).text("stage2");
  const size_t init = text.find("init:"), body = text.find("Y[i + 1] = Y[i + 1]");
  EXPECT_LT(text.find("fail it: Y[i + 1]", init), body) << text;
}

TEST(Order, ConditionsBetweenLoopsMayNotReadWhatTheyStore) {
  Stage2 stage = stage_of(R"(  for i in range(m):
    if T[i] > 0:
      for j in range(n):
        block b:
          T[i] = T[i] + 1
)");
  const Dependences found(stage, {}, {&stage.body[0]});
  EXPECT_EQ(found.problem_of_order({"i", "j"}, {"j", "i"}),
            "T[i] is read between the loops, and may be written within them");
}

}  // namespace
}  // namespace weft::sparse::test
