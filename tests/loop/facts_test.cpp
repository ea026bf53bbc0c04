// Proofs: what holds is found, and what does not hold never is.
#include "loop/facts.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace weft::loop {
namespace {

class FactsTest : public ::testing::Test {
 protected:
  const Expr i = variable("i"), j = variable("j"), n = variable("n");

  Facts facts() const {
    Function function{.name = "f", .scalars = {"n"}};
    function.buffers = {{.name = "p", .dtype = DType::int32, .size = n + 1, .least = 0, .most = n}};
    Facts result(function);
    result.push_loop("i", n);
    result.push_loop("j", 4);
    return result;
  }
};

TEST_F(FactsTest, ProveRangesOfLoopsAndArrays) {
  const Facts f = facts();
  const Expr p = load("p", {i}, Type::integer);
  EXPECT_TRUE(f.holds(less(i, n)));
  EXPECT_TRUE(f.holds(less(i * 4 + j, n * 4)));
  EXPECT_FALSE(f.holds(less(i * 4 + j, n * 4 - 1)));
  EXPECT_TRUE(f.holds(at_least(p, 0)));
  EXPECT_TRUE(f.holds(less(p, n + 1)));
  EXPECT_FALSE(f.holds(less(p, n)));
  EXPECT_TRUE(f.fails(less(j, 0)));
  EXPECT_TRUE(f.holds(less(modulo(i + j, 7), 7)));
  EXPECT_FALSE(f.holds(at_least(variable("unknown"), 0)));
  EXPECT_FALSE(f.holds(less(i, j)) || f.fails(less(i, j)));
}

TEST_F(FactsTest, UseConditionsThatHold) {
  Facts f = facts();
  const Expr condition = less(i + j, n - 3);
  EXPECT_FALSE(f.holds(less(i + j + 3, n)));
  f.push_condition(condition);
  EXPECT_TRUE(f.holds(less(i + j + 3, n)));
  EXPECT_FALSE(f.holds(less(i + j + 4, n)));
  f.pop_condition();
  EXPECT_FALSE(f.holds(condition));
}

TEST_F(FactsTest, SimplifyDivisionsByWhatDividesThem) {
  const Facts f = facts();
  EXPECT_EQ(to_text(simplify(floor_div(i * 4 + j, 4), f)), "i");
  EXPECT_EQ(to_text(simplify(modulo(i * 4 + j, 4), f)), "j");
  EXPECT_EQ(to_text(simplify(floor_div(i * 8 + j * 2 + 1, 4), f)), "i * 2 + (j * 2 + 1) // 4");
  EXPECT_EQ(to_text(simplify(operation(Op::minimum, {i, n}), f)), "i");
}

// Any sum of the three with small coefficients: what is proven holds for all values.
TEST_F(FactsTest, NeverProveWhatIsFalse) {
  const bool holds = rc::check("no false proof", [this] {
    const auto c = [] { return *rc::gen::inRange(-5, 6); };
    const int a = c(), b = c(), d = c(), e = c() * 3;
    const Expr sum = i * a + j * b + n * d + e;
    const Facts f = facts();
    const bool at_least_0 = f.is_nonnegative(sum), below_0 = f.fails(at_least(sum, 0));
    for (int size = 0; size < 7; ++size)
      for (int x = 0; x < size; ++x)
        for (int y = 0; y < 4; ++y) {
          const int value = a * x + b * y + d * size + e;
          RC_ASSERT(!at_least_0 || value >= 0);
          RC_ASSERT(!below_0 || value < 0);
        }
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace weft::loop
