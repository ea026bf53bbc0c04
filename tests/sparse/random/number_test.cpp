// The bounds that random programs are held to: arithmetic of fp32 and fp16 keeps them, and they are narrow.
#include "tests/sparse/random/number.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/fp16.h"
#include "tests/sparse/random/make_program.h"

namespace weft::sparse::random {
namespace {

Term any_number(Random& random, char type) {
  if (type == 'r') return real_literal(random.pick({0.5, 3.0, -1.0, 0.1, 2.0, -4.0, 0.3}));
  return literal(random.between(-9, 9));
}

// Each operation in fp32; functions one ulp off.
double in_fp32(const Term& term) {
  if (term.kind != Term::Kind::operation) return term.type == 'r' ? static_cast<float>(term.value) : term.value;
  double x[3] = {};
  for (size_t i = 0; i < term.operands.size(); ++i) x[i] = in_fp32(term.operands[i]);
  const double value = term.op->apply(x);
  if (term.type != 'r') return value;
  const auto nearest = static_cast<float>(value);
  const bool errs = term.op->rounding == Rounding::function && term.op->form == Operation::Form::call &&
                    term.op->symbol != "sqrt" && value != 0;
  return errs ? std::nextafterf(nearest, 1e30f) : nearest;
}

TEST(RandomNumbers, ArithmeticOfFp32StaysWithinTheirErrors) {
  int exact = 0, rounded = 0, wide = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    Random random(seed);
    const Term term = make_term(random, 'r', 4, [&](char type) { return any_number(random, type); });
    Number x;
    double got = 0;
    try {
      x = value_of(term, {});
      got = in_fp32(term);
    } catch (const std::runtime_error&) {  // Unusable, Fails
      continue;
    }
    ++(x.error == 0 ? exact : rounded);
    wide += x.error > 1e-4 * std::max(1.0, x.size) ? 1 : 0;
    ASSERT_LE(std::fabs(got - x.value), x.error) << to_text(term);
  }
  EXPECT_GT(exact, 5000);
  EXPECT_GT(rounded, 2000);
  EXPECT_LT(wide * 100, rounded);
}

// In another order, a sum may be all of its positive terms on the way: fp16 holds up to 2048 halves.
TEST(RandomNumbers, StayExactWhereEveryOrderOfASumIs) {
  const Operation& plus = *operation("+", {real_literal(1), real_literal(1)}).op;
  Number sum = number(0);
  for (int i = 0; i < 300; ++i) {
    const Number pair[] = {sum, number(i % 2 == 0 ? 7.5 : -7.5)};
    sum = result_of(plus, pair);
    ASSERT_EQ(sum.error, 0);
    const bool fits = i < 136;  // 136 * 7.5 is less than 2048 halves
    ASSERT_TRUE(!fits || stored(sum, "fp16", true).error == 0) << i;
  }
  EXPECT_EQ(sum.value, 0);
  EXPECT_EQ(sum.size, 2250);
  EXPECT_GT(stored(sum, "fp16", true).error, 0);
}

// To nearest, and not further.
TEST(RandomNumbers, RoundToNearestInFp16) {
  for (double value = 0.001; value < 60000; value *= 1.37) {
    const Number x = stored(number(value), "fp16", false);
    const double nearest = from_fp16(to_fp16(value)), unit = std::ldexp(1, std::max(std::ilogb(value), -14) - 10);
    EXPECT_LE(std::fabs(nearest - value), x.error) << value;
    EXPECT_GT(std::fabs(nearest - value) + unit, x.error) << value << ": the next but one would pass";
  }
}

}  // namespace
}  // namespace weft::sparse::random
