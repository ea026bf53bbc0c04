// Where proofs end: of every kind of value the least and the greatest is known and nothing beyond, and passes leave
// alone what they may not touch.
#include <gtest/gtest.h>

#include "loop/facts.h"
#include "loop/parse.h"
#include "loop/passes.h"
#include "weft/error.h"

namespace weft::loop {
namespace {

Expr compared(Op op, const Expr& a, const Expr& b) { return operation(op, {a, b}); }

class Proofs : public ::testing::Test {
 protected:
  Proofs() : facts(function()) {
    facts.push_loop("i", variable("n"));
    facts.push_loop("j", 4);
  }
  static Function function() {
    Function f{.name = "f", .scalars = {"n"}};
    f.buffers = {{.name = "p", .dtype = DType::int32, .size = variable("n") + 1, .least = 0, .most = variable("n")}};
    return f;
  }
  // The value is proven to be that much at most, and no less.
  void expect_most(const Expr& value, const Expr& most) {
    EXPECT_TRUE(facts.holds(less(value, most + 1))) << to_text(value);
    EXPECT_FALSE(facts.holds(less(value, most))) << to_text(value);
  }
  void expect_least(const Expr& value, const Expr& least) {
    EXPECT_TRUE(facts.holds(at_least(value, least))) << to_text(value);
    EXPECT_FALSE(facts.holds(at_least(value, least + 1))) << to_text(value);
  }
  const Expr i = variable("i"), j = variable("j"), n = variable("n"), x = variable("x"), q = variable("q");
  Facts facts;
};

TEST_F(Proofs, OfEachComparisonAndItsOppositeReachTheirBorder) {
  EXPECT_TRUE(facts.holds(compared(Op::greater, j, -1)));
  EXPECT_FALSE(facts.holds(compared(Op::greater, j, 0)));
  EXPECT_TRUE(facts.holds(compared(Op::less_equal, j, 3)));
  EXPECT_FALSE(facts.holds(compared(Op::less_equal, j, 2)));
  EXPECT_TRUE(facts.fails(compared(Op::less_equal, j, -1)));
  EXPECT_FALSE(facts.fails(compared(Op::less_equal, j, 0)));
  EXPECT_TRUE(facts.fails(compared(Op::greater, j, 3)));
  EXPECT_FALSE(facts.fails(compared(Op::greater, j, 2)));
  EXPECT_TRUE(facts.fails(compared(Op::greater_equal, j, 4)));
  EXPECT_FALSE(facts.fails(compared(Op::greater_equal, j, 3)));
  EXPECT_TRUE(facts.fails(compared(Op::less, j, 0)));
  EXPECT_FALSE(facts.fails(compared(Op::less, j, 1)));
}

TEST_F(Proofs, OfConditionsReachTheirBorder) {
  const Expr y = variable("y");  // of which nothing is known
  for (const auto& [op, least] : {std::pair(Op::greater, 6), std::pair(Op::greater_equal, 5)}) {
    facts.push_condition(compared(op, y, 5));
    expect_least(y, least);
    facts.pop_condition();
  }
  for (const auto& [op, most] : {std::pair(Op::less, 4), std::pair(Op::less_equal, 5)}) {
    facts.push_condition(compared(op, y, 5));
    expect_most(y, most);
    expect_most(y * 3, 3 * most);
    EXPECT_FALSE(facts.holds(at_least(y, -100)));
    EXPECT_FALSE(facts.holds(at_least(y * -3, -3 * most + 1)));
    facts.pop_condition();
  }
}

TEST_F(Proofs, OfBothAndOfEither) {
  const Expr sure = less(j, 4), open = less(j, 2), never = less(j, 0);
  for (const auto& [a, b] : {std::pair(sure, open), std::pair(open, sure)}) {
    EXPECT_TRUE(facts.holds(compared(Op::logical_or, a, b)));
    EXPECT_FALSE(facts.holds(compared(Op::logical_and, a, b)));
  }
  for (const auto& [a, b] : {std::pair(never, open), std::pair(open, never)}) {
    EXPECT_TRUE(facts.fails(compared(Op::logical_and, a, b)));
    EXPECT_FALSE(facts.fails(compared(Op::logical_or, a, b)));
  }
  EXPECT_FALSE(facts.holds(compared(Op::logical_or, open, open)));
  EXPECT_FALSE(facts.fails(compared(Op::logical_and, open, open)));
  EXPECT_TRUE(facts.fails(compared(Op::logical_or, never, never)));
}

TEST_F(Proofs, OfQuotientsRemaindersAndProducts) {
  const Expr y = variable("y");
  expect_most(modulo(y, 7), 6);
  expect_least(modulo(y, 7), 0);
  expect_most(floor_div(i, 4) * 4, i);
  expect_most(floor_div(j, 3), 1);
  expect_most(floor_div(j, 4), 0);
  EXPECT_FALSE(facts.holds(at_least(floor_div(y, 4), 0)));
  EXPECT_FALSE(facts.holds(at_least(i * y, 0)));
  EXPECT_FALSE(facts.holds(at_least(y * i, 0)));
  EXPECT_TRUE(facts.holds(at_least(i * j, 0)));
  EXPECT_TRUE(facts.holds(at_least(n * 3, i * j)));
  EXPECT_FALSE(facts.holds(at_least(y * 3, y * j)));  // y may be negative
  EXPECT_FALSE(facts.holds(at_least(i, floor_div(i, 4) * 6)));
  EXPECT_TRUE(facts.holds(at_least(n * n - n, i * n)));
  EXPECT_FALSE(facts.holds(at_least(n * n - n * 2, i * n)));
  const Expr v = variable("v"), m = variable("m");
  facts.push_loop("m", n);  // 0 or more
  facts.push_loop("v", n * m);
  EXPECT_TRUE(facts.holds(at_least(n * n - n, floor_div(v, m) * n)));
  EXPECT_FALSE(facts.holds(at_least(n * n - n * 2, floor_div(v, m) * n)));
}

TEST_F(Proofs, OfSearchesAndWhatTheyFound) {
  const Expr found = search(Op::find, "p", {0}, n, x), above = search(Op::upper_bound, "p", {0}, n, x);
  expect_most(found, n - 1);
  expect_least(found, -1);
  expect_most(above, n);
  expect_least(above, 0);
  facts.push_let("q", found);
  expect_most(q, n - 1);
  expect_least(q, -1);
  facts.push_condition(at_least(q, 0));
  expect_least(q, 0);
  facts.pop_condition();
  facts.pop_let();
}

// Where a position is there its search was asked for; where it may be -1 that says nothing.
TEST_F(Proofs, OfTheConditionOfASearch) {
  const Expr y = variable("y"), found = search(Op::find, "p", {0}, n, x);
  for (const int otherwise : {-1, 0})
    for (const int least : {-1, 0}) {
      facts.push_let("q", select(less(y, 5), found, otherwise));
      facts.push_condition(at_least(q, least));
      EXPECT_EQ(facts.holds(less(y, 5)), otherwise == -1 && least == 0) << otherwise << " " << least;
      facts.pop_condition();
      facts.pop_let();
    }
}

TEST_F(Proofs, SimplifyNegativeConstantsAndNoUnknownDivisor) {
  EXPECT_EQ(to_text(simplify(modulo(j * 4 - 3, 4), facts)), "1");
  EXPECT_EQ(to_text(simplify(floor_div(j * 4 - 3, 4), facts)), "j - 1");
  const Expr y = variable("y");
  EXPECT_EQ(to_text(simplify(modulo(y, 4), facts)), "y % 4");
  EXPECT_EQ(to_text(simplify(modulo(j - 2, 4), facts)), to_text(modulo(j + 2, 4)));
  EXPECT_EQ(simplify(modulo(0 - j, 4), facts)->op, Op::modulo);
  EXPECT_EQ(to_text(simplify(floor_div(j, 0), facts)), "j // 0");
}

// ---------------------------------------------------------------- passes

Function function_of(const std::string& body) {
  return parse_function(
      "stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  r = flat(n): int32 in 0 to m\n  A = flat(n * 8): fp32\n  B = "
      "flat(n * 8): fp32\n" +
      body);
}

void expect_left_alone(void (*pass)(Function&), const std::string& body) {
  Function function = function_of(body);
  const Function before = function;
  pass(function);
  EXPECT_EQ(to_text(function.body), to_text(before.body));
}

TEST(LeftAlone, LoopsWhoseOrderOrNamesMatter) {
  expect_left_alone(simplify, "  for i in range(n) [parallel]:\n    if 0 < m:\n      A[i] = 0.0\n");
  expect_left_alone(simplify, "  for i in range(n):\n    if 0 < m:\n      A[i] = 0.0\n    B[i] = 1.0\n");
  expect_left_alone(simplify, "  for i in range(1) [bind=blockIdx.x]:\n    A[i] = 0.0\n");
}

// Tails are peeled where the condition is that of the loop's own end, and nothing within changes its bound.
TEST(LeftAlone, TailsThatAreNotThoseOfTheirLoop) {
  const auto loop = [](const std::string& extent, const std::string& inner, const std::string& condition) {
    return "  for o in range(" + extent + "):\n    for v in range(" + inner + "):\n      if " + condition +
           ":\n        A[o * 4 + v] = 0.0\n";
  };
  Function peels = function_of(loop("(m + 3) // 4", "4", "o * 4 + v < m"));
  peel_tails(peels);
  EXPECT_EQ(peels.body.size(), 2u);
  for (const auto& [extent, inner, condition] :
       std::vector<std::array<std::string, 3>>{{"(m + 3) // 4", "4", "o * 4 + v + 1 < m"},
                                               {"(m + 3) // 4", "3", "o * 4 + v < m"},
                                               {"n", "4", "o * 4 + v < m"},
                                               {"(m + 3) // 4", "4", "o * 4 + v < m + v"},
                                               {"(p[0] + 3) // 4", "4", "o * 4 + v < p[0]"}})
    expect_left_alone(peel_tails, loop(extent, inner, condition));
  std::string parallel = loop("(m + 3) // 4", "4", "o * 4 + v < m");
  expect_left_alone(peel_tails, parallel.insert(parallel.find(":"), " [parallel]"));
  Function two = function_of(
      "  for o in range((m + 3) // 4):\n    for v in range(4):\n      if o * 4 + v < m:\n        if o * 2 + v < m:\n"
      "          A[o * 4 + v] = 0.0\n");
  peel_tails(two);
  const std::string whole = to_text(Body{two.body[0]});
  EXPECT_EQ(whole.find("if o * 4 + v < m"), whole.npos) << whole;
  EXPECT_NE(whole.find("if o * 2 + v < m"), whole.npos) << whole;
}

std::vector<bool> joined(const std::string& body, const std::vector<std::vector<std::string>>& apart = {}) {
  Function function = function_of(body);
  function.apart = apart;
  join_phases(function);
  std::vector<bool> all;
  for (const Stmt& stmt : function.body) all.push_back(stmt.joined);
  return all;
}

std::string each(const std::string& line) { return "  for i in range(n) [parallel]:\n    " + line + "\n"; }

TEST(Joining, NobodyWaitsBetweenLoopsThatTouchNoElementOfEachOther) {
  const std::string a = each("A[i] = 1.0"), b = each("B[i] = 1.0"), reads_a = each("B[i] = A[i]");
  EXPECT_EQ(joined(a + b), (std::vector<bool>{false, true}));
  EXPECT_EQ(joined(a + reads_a), (std::vector<bool>{false, false}));
  EXPECT_EQ(joined(a + reads_a + a), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(joined(a + "  B[0] = 1.0\n" + b), (std::vector<bool>{false, false, false}));
  // The third meets nobody of its own phase, whoever came before.
  EXPECT_EQ(joined(b + reads_a + a), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(joined(a + a + b), (std::vector<bool>{false, false, true}));
  const std::string reads_p = each("A[i] = real(p[i])"), also_p = each("B[i] = real(p[i])");
  EXPECT_EQ(joined(each("p[i] = 1") + reads_p + also_p), (std::vector<bool>{false, false, true}));
}

TEST(Joining, ArraysThatAreApartSayWhereAndRowsDoNotReachIntoEachOther) {
  const auto rows = [](const std::string& array, const std::string& factor, const std::string& extent) {
    return "  for i in range(n) [parallel]:\n    for k in range(" + extent + "):\n      A[" + array + "[i] * " +
           factor + " + k] = 1.0\n";
  };
  const std::vector<std::vector<std::string>> apart{{"p", "r"}};
  const std::vector<bool> meet{false, false}, join{false, true};
  EXPECT_EQ(joined(rows("p", "4", "4") + rows("r", "4", "4"), apart), join);
  EXPECT_EQ(joined(rows("p", "4", "4") + rows("r", "4", "4")), meet);
  EXPECT_EQ(joined(rows("p", "4", "4") + rows("p", "4", "4"), apart), meet);
  EXPECT_EQ(joined(rows("p", "4", "4") + rows("r", "2", "2"), apart), meet);
  EXPECT_EQ(joined(rows("p", "4", "5") + rows("r", "4", "5"), apart), meet);
  EXPECT_EQ(joined(each("A[p[i] * 4 - 1] = 1.0") + each("A[r[i] * 4 - 1] = 1.0"), apart), meet);
  // Copied first, or something else.
  const auto copied = [](const std::string& array, const std::string& what) {
    return "  for i in range(n) [parallel]:\n    allocate " + array + "_copy[1]: int64 in register\n    " + array +
           "_copy[0] = " + what + "\n    for k in range(4):\n      A[" + array + "_copy[0] * 4 + k] = 1.0\n";
  };
  EXPECT_EQ(joined(copied("p", "p[i]") + copied("r", "r[i]"), apart), join);
  EXPECT_EQ(joined(copied("p", "p[i]") + copied("r", "r[i] + 1"), apart), meet);
}

TEST(Joining, AtomicSumsMeetWhateverIsNoSum) {
  const std::string sum = each("atomic A[p[i]] = A[p[i]] + B[i]"), store = each("A[i] = 1.0");
  EXPECT_EQ(joined(sum + sum), (std::vector<bool>{false, true}));
  EXPECT_EQ(joined(sum + store), (std::vector<bool>{false, false}));
  EXPECT_EQ(joined(store + sum), (std::vector<bool>{false, false}));
  EXPECT_EQ(joined(sum + each("B[i] = A[i]")), (std::vector<bool>{false, false}));
}

// What a condition keeps inside is proven where it holds, and nowhere else.
TEST(BoundsOfSelects, HoldInTheBranchThatIsTaken) {
  EXPECT_EQ(
      check_bounds(function_of("  for i in range(n):\n    A[i] = select(i + 1 < n, B[i + n * 7 + 1], 0.0)\n")).proven,
      2);
  EXPECT_EQ(
      check_bounds(function_of("  for i in range(n):\n    A[i] = select(i + 1 < n, 0.0, B[i + n * 7 + 1])\n")).proven,
      1);
}

}  // namespace
}  // namespace weft::loop
