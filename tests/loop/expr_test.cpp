// Expressions: folding, structural equality, text, sums.
#include "loop/expr.h"

#include <gtest/gtest.h>

#include "loop/linear.h"
#include "loop/parse.h"

namespace weft::loop {
namespace {

class ExprTest : public ::testing::Test {
 protected:
  const Expr i = variable("i"), j = variable("j"), n = variable("n");
};
using LinearTest = ExprTest;

Expr parsed(const std::string& text) {
  Cursor line(text, 1, 0);
  Expr e =
      parse_expr(line, {.variables = {"i", "j", "n"}, .buffers = {{"A", {Type::real, 2}}, {"p", {Type::integer, 1}}}});
  line.expect_end();
  return e;
}

TEST_F(ExprTest, FoldsIntegersAndWhatChangesNothing) {
  EXPECT_EQ(Expr(2) + 3, Expr(5));
  EXPECT_EQ(i + 0, i);
  EXPECT_EQ(i * 1, i);
  EXPECT_EQ(i * 0, Expr(0));
  EXPECT_EQ(floor_div(-7, 2), Expr(-4));
  EXPECT_EQ(modulo(-7, 2), Expr(1));
  EXPECT_EQ(to_text(Expr(INT64_MAX) + 1), "9223372036854775807 + 1");    // does not fit
  EXPECT_EQ(to_text(Expr(-INT64_MAX) - 1), "-9223372036854775807 - 1");  // has no negative
  EXPECT_EQ(operation(Op::negate, {Expr(-5)}), Expr(5));
  EXPECT_EQ(operation(Op::absolute, {Expr(-5)}), Expr(5));
  EXPECT_EQ(to_text(real(0) + real(1)), "0.0 + 1.0");  // reals stay as they are written
}

TEST_F(ExprTest, IsEqualByStructure) {
  EXPECT_EQ(i + j * 2, i + j * 2);
  EXPECT_FALSE(i + j == j + i);
  EXPECT_FALSE(i == variable("i", Type::real));
  EXPECT_FALSE(real(1) == Expr(1));
}

TEST_F(ExprTest, ReadsBackWhatItPrints) {
  for (const char* text :
       {"i + j * n", "(i + j) * n", "i - (j - n)", "i - j - n", "-i * 2", "-(i + 2)", "i // 2 % 3", "i // (2 * n)",
        "A[i, p[j] + 1] * 2.0 + 0.5", "select(i < j and not i == 3, A[i, j], -inf)", "max(i, min(j, 3))",
        "find(p[i + 1], n - i, j)", "upper_bound(p[0], n + 1, i) - 1", "(i < j or i > n) and j != 2",
        "exp(-A[i, j]) / sqrt(2.5)", "1e-30 * abs(A[0, 0])", "real(i) - 3.0", "i * -5", "not (i < 2 or j < 3)"})
    EXPECT_EQ(to_text(parsed(text)), text);
}

TEST_F(ExprTest, SubstitutesVariables) {
  EXPECT_EQ(to_text(substitute(parsed("A[i, p[i]] + real(j)"), {{"i", j + 1}, {"j", 3}})),
            "A[j + 1, p[j + 1]] + real(3)");
}

TEST_F(LinearTest, CollectsAndCancels) {
  EXPECT_EQ(to_text(expr_of(linear_of(i * 4 + 3 - i))), "i * 3 + 3");
  EXPECT_EQ(to_text(expr_of(linear_of(parsed("p[i] + (j - p[i])")))), "j");
  EXPECT_EQ(to_text(expr_of(linear_of(i - j - i))), "j * -1");
  EXPECT_EQ(to_text(expr_of(linear_of(parsed("(i + 2) * 8 - (j + 16)")))), "i * 8 - j");
  int64_t step = 0;
  Expr rest;
  EXPECT_TRUE(is_linear_in(parsed("n * 3 + i * 2 + 1"), "i", &step, &rest));
  EXPECT_EQ(step, 2);
  EXPECT_EQ(to_text(rest), "n * 3 + 1");
  EXPECT_FALSE(is_linear_in(parsed("p[i] + i"), "i", &step, &rest));
}

TEST_F(LinearTest, OfNoTermsIsItsConstant) {
  for (const int64_t constant : {-7, -1, 0, 3}) {
    EXPECT_EQ(expr_of({.constant = constant}), Expr(constant));
    EXPECT_EQ(expr_of(linear_of(i + (constant - i))), Expr(constant));
  }
  EXPECT_EQ(to_text(expr_of(linear_of(parsed("p[i] * -2 - 5 + p[i] * 2 - j")))), "j * -1 - 5");
}

TEST_F(LinearTest, GivesUpWhereNumbersDoNotFit) {
  const Expr large = i * INT64_MAX;
  EXPECT_EQ(expr_of(linear_of(large + large)), large + large);
  const Expr least = i * -INT64_MAX - i;  // its coefficient has no negative
  EXPECT_EQ(expr_of(linear_of(least)), least);
  const Expr product = (i * (INT64_MAX / 2)) * (j * 3);
  EXPECT_EQ(expr_of(linear_of(product)), product);
}

// What is within is looked at once, and not twice for each product around it.
TEST_F(LinearTest, OfProductsThatStandDeep) {
  Expr product = i * 3;
  for (int depth = 0; depth < 90; ++depth) product = operation(Op::multiply, {j, product});
  EXPECT_EQ(linear_of(product).terms[0].second, 3);
}

}  // namespace
}  // namespace weft::loop
