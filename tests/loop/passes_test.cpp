// Passes over flat loops: before and after as text, and by value.
#include "loop/passes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "loop/codegen/printers.h"
#include "loop/interpret.h"
#include "loop/parse.h"
#include "loop/threads.h"
#include "weft/error.h"

namespace weft::loop {
namespace {

std::string body_of(const Function& function) { return to_text(function.body); }

Function with(const std::string& body) {
  return parse_function(
      "stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  A = flat(n * 8): fp32\n  B = flat(n * 8): fp32\n" + body);
}

std::string simplified(const std::string& body) {
  Function function = with(body);
  simplify(function);
  return body_of(function);
}

TEST(Simplify, DropsWhatIsProvenAndWhatNeverRuns) {
  EXPECT_EQ(
      simplified("  for i in range(n):\n    if i < n:\n      A[i + 1 - 1] = 0.0\n    if i < 0:\n      A[i] = 1.0\n"),
      "for i in range(n):\n  A[i] = 0.0\n");
  EXPECT_EQ(simplified("  for i in range(1):\n    A[i * 3 + 2] = 0.0\n  for j in range(0):\n    A[j] = 1.0\n"),
            "A[2] = 0.0\n");
}

TEST(Simplify, MovesConditionsOutOfLoopsThatTheyDoNotDependOn) {
  EXPECT_EQ(
      simplified(
          "  for i in range(n):\n    for k in range(8):\n      if p[i] < m and k < 4:\n        A[i * 8 + k] = 0.0\n"),
      "for i in range(n):\n  if p[i] < m:\n    for k in range(8):\n      if k < 4:\n        A[i * 8 + k] = 0.0\n");
}

TEST(Simplify, LeavesConditionsWhereTheLoopChangesThem) {
  const std::string text = "for k in range(8):\n  if A[0] < 1.0:\n    A[0] = A[0] + B[k]\n";
  EXPECT_EQ(simplified("  for k in range(8):\n    if A[0] < 1.0:\n      A[0] = A[0] + B[k]\n"), text);
}

// A condition is no fact any more of an element that is stored where it held.
TEST(Simplify, KnowsNothingOfElementsThatAreStored) {
  const std::string text =
      "if Q[0] < 4:\n  Q[0] = Q[0] + 3\n  if Q[0] < 4:\n    A[Q[0]] = 1.0\n  A[min(Q[0], 3)] = 2.0\n";
  Function function = parse_function(
      "stage3 f(n, m):\n  Q = flat(n): int32\n  A = flat(n * 8): fp32\n  if Q[0] < 4:\n    Q[0] = Q[0] + 3\n"
      "    if Q[0] < 4:\n      A[Q[0]] = 1.0\n    A[min(Q[0], 3)] = 2.0\n");
  simplify(function);
  EXPECT_EQ(body_of(function), text);
}

// Outside of a loop that may have no iteration nothing is read that only its iterations may read.
TEST(Simplify, LeavesConditionsInLoopsThatSayWhereTheyRead) {
  for (const char* extent : {"n - i", "m - 1"}) {
    const std::string body =
        fmt::format("for i in range(m):\n  for j in range({}):\n    if B[i] < 1.0:\n      A[j] = 1.0\n", extent);
    std::string deep = "  " + body;
    for (size_t at = 0; (at = deep.find("\n", at + 1)) + 1 < deep.size();) deep.insert(at + 1, "  ");
    EXPECT_EQ(simplified(deep), body);
  }
  // A literal extent has iterations, and p has n elements.
  EXPECT_EQ(simplified("  for i in range(m):\n    for j in range(4):\n      if B[i] < 1.0:\n        A[j] = 1.0\n"),
            "for i in range(m):\n  if B[i] < 1.0:\n    for j in range(4):\n      A[j] = 1.0\n");
  EXPECT_EQ(simplified("  for i in range(n):\n    for j in range(m):\n      if p[i] < 1:\n        A[j] = 1.0\n"),
            "for i in range(n):\n  if p[i] < 1:\n    for j in range(m):\n      A[j] = 1.0\n");
}

// Nor does anything divide there.
TEST(Simplify, LeavesConditionsThatMayFailInLoops) {
  const auto condition = [](const char* extent) {
    return fmt::format(
        "for i in range(n):\n  for j in range({}):\n    if checked(7 // p[i], f(\"7 // P[i]\", i in I), i) < 1:\n"
        "      A[j] = 1.0\n",
        extent);
  };
  const auto indented = [](std::string text) {
    text.insert(0, "  ");
    for (size_t at = 0; (at = text.find("\n", at + 1)) + 1 < text.size();) text.insert(at + 1, "  ");
    return text;
  };
  EXPECT_EQ(simplified(indented(condition("m"))), condition("m"));
  EXPECT_EQ(simplified(indented(condition("4"))),
            "for i in range(n):\n  if checked(7 // p[i], f(\"7 // P[i]\", i in I), i) < 1:\n    for j in range(4):\n"
            "      A[j] = 1.0\n");
}

TEST(PeelTails, MakesALoopOfWholeVectorsAndARest) {
  Function function = with(
      "  for i in range(n):\n    for o in range((m + 3) // 4):\n      for v in range(4) [vectorize]:\n"
      "        if o * 4 + v < m:\n          A[i * m + o * 4 + v] = 0.0\n");
  simplify(function);
  peel_tails(function);
  EXPECT_EQ(body_of(function),
            "for i in range(n):\n  for o in range(m // 4):\n    for v in range(4) [vectorize]:\n      A[i * m + o * 4 "
            "+ v] = 0.0\n"
            "  if 0 < m % 4:\n    for v in range(4) [vectorize]:\n      if m // 4 * 4 + v < m:\n"
            "        A[i * m + m // 4 * 4 + v] = 0.0\n");
}

// Of a bound below 0 the last part of a vector is not there: the loop has no iteration.
TEST(PeelTails, HaveNoLastPartOfABoundBelow0) {
  for (const int64_t m : {1, 2, 5, 6, 9}) {
    const Function before = with(
        "  for o in range((m - 5 + 3) // 4):\n    for v in range(4):\n      if o * 4 + v < m - 5:\n"
        "        A[max(o * 4 + v, 0)] = 1.0\n");
    Function after = before;
    simplify(after);
    peel_tails(after);
    EXPECT_NE(body_of(after).find("0 < m - 5 and"), std::string::npos) << body_of(after);
    Memory one{
        .scalars = {{"n", 2}, {"m", m}},
        .buffers = {{"p", std::vector<double>(2)}, {"A", std::vector<double>(16)}, {"B", std::vector<double>(16)}}};
    Memory two = one;
    interpret(before, one);
    interpret(after, two);
    EXPECT_EQ(one.buffers, two.buffers) << m;
  }
}

// A loop of the same name that runs further keeps its condition.
TEST(PeelTails, KeepConditionsOfLoopsThatRunFurther) {
  Function function = with(
      "  for o in range((m + 3) // 4):\n    for v in range(4):\n      if o * 4 + v < m:\n        A[o * 4 + v] = 0.0\n"
      "    for v in range(8):\n      if o * 4 + v < m:\n        B[o * 4 + v] = 0.0\n");
  peel_tails(function);
  const std::string text = body_of(function);
  EXPECT_NE(text.find("for v in range(8):\n    if o * 4 + v < m:\n"), text.npos) << text;
}

// Of CTAs whose threads add up together, those in which all conditions hold ask none; the others unroll nothing.
TEST(PeelTails, PartCtasThatAreWhole) {
  Function function = with(
      "  for i in range((m + 7) // 8) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n"
      "      for k in range(4) [reduce, bind=threadIdx.x]:\n"
      "        for e in range(2) [unroll]:\n          if i * 8 + e * 4 + r < m:\n"
      "            A[i * 8 + e * 4 + r] = A[i * 8 + e * 4 + r] + B[k]\n");
  simplify(function);
  peel_tails(function);
  simplify(function);
  EXPECT_EQ(body_of(function), R"(for i in range((m + 7) // 8) [bind=blockIdx.x]:
  if i * 8 + 7 < m:
    for r in range(4) [bind=threadIdx.y]:
      for k in range(4) [reduce, bind=threadIdx.x]:
        for e in range(2) [unroll]:
          A[i * 8 + e * 4 + r] = A[i * 8 + e * 4 + r] + B[k]
  if not i * 8 + 7 < m:
    for r in range(4) [bind=threadIdx.y]:
      for k in range(4) [reduce, bind=threadIdx.x]:
        for e in range(2) [rolled]:
          if i * 8 + e * 4 + r < m:
            A[i * 8 + e * 4 + r] = A[i * 8 + e * 4 + r] + B[k]
)");
}

// Of two conditions both have to hold.
TEST(PeelTails, PartCtasInWhichAllConditionsHold) {
  Function function = with(
      "  for i in range(n) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n"
      "      for k in range(4) [reduce, bind=threadIdx.x]:\n        if i * 8 + r < m:\n"
      "          if i * 4 + k < n:\n            A[i * 8 + r] = A[i * 8 + r] + B[k]\n");
  peel_tails(function);
  const std::string text = body_of(function);
  EXPECT_NE(text.find("  if i * 8 + 3 < m and i * 4 + 3 < n:\n"), text.npos) << text;
}

// What only some iterations know, and what no sum of threads is in, stays as it is.
TEST(PeelTails, LeaveCtasWhoseConditionsAreOthers) {
  for (const char* lines : {"        for e in range(2):\n          if p[e] < m:\n            A[r] = A[r] + B[k]\n",
                            "        for e in range(p[i]):\n          if i + e < m:\n            A[r] = A[r] + B[k]\n",
                            "        for e in range(2):\n          if i + e < p[0]:\n            A[r] = A[r] + B[k]\n",
                            "        for e in range(2):\n          if i - e < m:\n            A[r] = A[r] + B[k]\n",
                            "        let e = p[i]\n        if i + e < m:\n          A[r] = A[r] + B[k]\n"}) {
    Function function = with(
        "  for i in range(n) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n"
        "      for k in range(4) [reduce, bind=threadIdx.x]:\n" +
        std::string(lines));
    const Function before = function;
    peel_tails(function);
    EXPECT_EQ(body_of(function), body_of(before));
  }
}

// Programs of nested loops with tails, by value: each pass changes nothing.
TEST(Passes, ComputeTheSame) {
  for (const int64_t m : {0, 1, 3, 4, 5, 8}) {
    const Function before = with(
        "  for i in range(n):\n    for o in range((m + 3) // 4):\n      for v in range(4):\n        if o * 4 + v < m:\n"
        "          B[i * 8 + (o * 4 + v) % 8] = A[(i * 8 + o * 4 + v) // 2] * 3.0 + real(o - v)\n");
    Function after = before;
    simplify(after);
    peel_tails(after);
    simplify(after);
    Memory one{
        .scalars = {{"n", 3}, {"m", m}},
        .buffers = {
            {"p", std::vector<double>(3)}, {"A", std::vector<double>(24, 1.5)}, {"B", std::vector<double>(24, 7)}}};
    Memory two = one;
    interpret(before, one);
    interpret(after, two);
    EXPECT_EQ(one.buffers, two.buffers) << m;
  }
}

TEST(Bounds, CountProofsAndRefuseWhatLiesOutside) {
  const BoundsReport report =
      check_bounds(with("  for i in range(n):\n    for k in range(8):\n      A[i * 8 + k] = B[p[i]]\n"));
  EXPECT_EQ(report.total, 3);
  EXPECT_EQ(report.proven, 2);  // A and p; B's index is known to be at most m, which n * 8 may not be above
  EXPECT_THROW(check_bounds(with("  for i in range(n):\n    A[i + n * 8] = 0.0\n")), Error);
  EXPECT_THROW(check_bounds(with("  for i in range(n):\n    A[i] = B[-1]\n")), Error);
}

TEST(Bounds, AreKnownWhereTheFirstOfTwoConditionsHolds) {
  const auto others = [](const char* condition) {
    return check_bounds(with(std::string("  for i in range(m):\n    if ") + condition + ":\n      A[0] = 0.0\n"))
        .others;
  };
  EXPECT_EQ(others("i < n and p[i] < m").size(), 0u);
  EXPECT_EQ(others("p[i] < m and i < n").size(), 1u);
}

// What was copied lies where what it was copied from does.
TEST(Bounds, OfCopiesAreThoseOfWhatWasCopied) {
  const auto others = [](const char* condition, const char* copied) {
    return check_bounds(parse_function(fmt::format(R"(stage3 f(n, m):
  p = flat(n): int32 in 0 to m
  Y = flat(m): fp32
  for i in range(n):
    allocate c[1]: int64 in register
    c[0] = {}
    if {}:
      Y[c[0]] = 1.0
)",
                                                   copied, condition)))
        .others;
  };
  for (const char* condition : {"p[i] < m", "c[0] < m"}) EXPECT_EQ(others(condition, "p[i]").size(), 0u) << condition;
  EXPECT_EQ(others("i < n", "p[i]"), std::vector<std::string>{"Y[c[0]] of m elements"});
  EXPECT_EQ(others("c[0] < m", "p[i] - 1").size(), 1u);
}

TEST(Bounds, OfAPositionThatWasSearchedComeFromItsCondition) {
  const auto others = [](const char* condition, const char* index) {
    return check_bounds(
               with(std::string("  for i in range(m):\n    let at = select(i < n, find(p[i], 1, 7), -1)\n    if ") +
                    condition + ":\n      A[" + index + "] = 0.0\n"))
        .others.size();
  };
  EXPECT_EQ(others("at >= 0", "i + at"), 0u);      // the condition of the search: i < n
  EXPECT_EQ(others("at >= 0", "i + at + n"), 0u);  // at is at most 0, of one that are searched
  EXPECT_EQ(others("at >= -1", "i + at"), 1u);
  EXPECT_EQ(others("at < 1", "i + at"), 1u);
  EXPECT_EQ(others("at >= 0", "i + at - 1"), 1u);
}

// The row that was searched ends where the next begins, which is no later than all of them end.
TEST(Bounds, OfASearchedRowAreThoseOfItsArrays) {
  const BoundsReport report = check_bounds(parse_function(R"(stage3 f(m, n, nnz):
  ptr = flat(m + 1): int32 in 0 to nnz
  idx = flat(nnz): int32 in 0 to n - 1
  Z = flat(nnz): fp32
  for x in range(m):
    for y in range(n):
      let at = find(idx[ptr[x]], ptr[x + 1] - ptr[x], y)
      if at >= 0:
        Z[ptr[x] + at] = 1.0
)"));
  EXPECT_EQ(report.others, std::vector<std::string>());
}

TEST(Phases, AreParallelNestsAndWhatStandsBetween) {
  const std::vector<Phase> phases = split_phases(with(
      "  A[0] = 1.0\n  A[1] = 2.0\n  for i in range(n) [parallel]:\n    A[i] = 0.0\n  for j in range(n) [parallel]:\n"
      "    B[j] = 0.0\n  B[0] = A[0]\n"));
  ASSERT_EQ(phases.size(), 4u);
  EXPECT_EQ(phases[0].body.size(), 2u);
  EXPECT_EQ(phases[0].parallel(), nullptr);
  EXPECT_NE(phases[1].parallel(), nullptr);
  EXPECT_NE(phases[2].parallel(), nullptr);
  EXPECT_EQ(phases[3].parallel(), nullptr);
}

Launches kernels_of(const std::string& body) { return split_threads(split_launches(with(body))); }

TEST(Codegen, CudaRefusesStoresThatThreadsWouldRepeat) {
  EXPECT_THROW(cuda_module({kernels_of(
                   "  for i in range(n) [bind=blockIdx.x]:\n    A[i] = 0.0\n    for k in range(8) [bind=threadIdx.x]:\n"
                   "      A[i] = A[i] + B[k]\n")}),
               Error);
  EXPECT_NE(
      cuda_module({kernels_of("  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [bind=threadIdx.x]:\n"
                              "      A[i * 8 + k] = B[k]\n")})
          .find("for (int k = threadIdx.x; k < 8; k += blockDim.x)"),
      std::string::npos);
}

}  // namespace
}  // namespace weft::loop
