// Between which numbers integers lie: every value does, and none is left out that one has.
#include "loop/ranges.h"

#include <gtest/gtest.h>

#include "loop/codegen/printers.h"
#include "loop/parse.h"
#include "loop/threads.h"

namespace weft::loop {
namespace {

int64_t value_of(const Expr& e, int64_t x, int64_t y) {
  int64_t value = 0;
  EXPECT_TRUE(is_integer(substitute(e, {{"x", x}, {"y", y}}), &value)) << to_text(e);
  return value;
}

TEST(Ranges, HoldEveryValueAndNoOther) {
  const Expr x = variable("x"), y = variable("y");
  const Expr values[] = {x + y,
                         x - y,
                         x * y,
                         operation(Op::minimum, {x, y}),
                         operation(Op::maximum, {x, y}),
                         operation(Op::negate, {x}),
                         floor_div(x, y),
                         modulo(x, y),
                         x * 3 - y};
  Ranges ranges;
  for (const Expr& e : values)
    for (int64_t a = -4; a <= 4; ++a)
      for (int64_t b = a; b <= 4; b += 2)
        for (int64_t c = is_division(e->op) ? 1 : -3; c <= 3; ++c)
          for (int64_t d = c; d <= 4; ++d) {
            ranges.set("x", {a, b});
            ranges.set("y", {c, d});
            int64_t least = INT64_MAX, most = INT64_MIN;
            for (int64_t i = a; i <= b; ++i)
              for (int64_t j = c; j <= d; ++j) {
                least = std::min(least, value_of(e, i, j));
                most = std::max(most, value_of(e, i, j));
              }
            const Interval interval = ranges.of(e);
            ASSERT_LE(interval.least, least) << to_text(e) << " of " << a << " to " << b << ", " << c << " to " << d;
            ASSERT_GE(interval.most, most) << to_text(e) << " of " << a << " to " << b << ", " << c << " to " << d;
            if (e->op == Op::modulo) continue;
            ASSERT_EQ(interval.least, least) << to_text(e) << " of " << a << " to " << b << ", " << c << " to " << d;
            ASSERT_EQ(interval.most, most) << to_text(e) << " of " << a << " to " << b << ", " << c << " to " << d;
          }
}

TEST(Ranges, KnowNothingOfWhatMayNotFit64Bits) {
  Ranges ranges;
  const Expr x = variable("x");
  EXPECT_FALSE(ranges.of(x).fits_int());
  EXPECT_FALSE(ranges.of(operation(Op::maximum, {x, 0})).fits_int());
  ranges.set("x", {0, int64_t{1} << 61});
  EXPECT_EQ(ranges.of(x * 2).most, int64_t{1} << 62);
  for (const Expr& e : {x * 4, x * 2 + x * 2, operation(Op::negate, {x * 4}), floor_div(x, x - 1)}) {
    EXPECT_EQ(ranges.of(e).least, INT64_MIN) << to_text(e);
    EXPECT_EQ(ranges.of(e).most, INT64_MAX) << to_text(e);
  }
  EXPECT_TRUE(ranges.of(modulo(x * 4, 7)).fits_int());
}

std::string cuda_of(const std::string& body) {
  const Function function = parse_function(
      "stage3 f(n, m):\n  p = flat(n + 1): int32 in 0 to m\n  q = flat(n): int32\n  w = flat(n): int64\n"
      "  A = flat(n * 8): fp32\n  B = flat(n * 8): fp32\n  Z = flat(n): int64\n" +
      body);
  const std::string code = cuda_module({split_threads(split_launches(function))});
  return code.substr(code.find("extern \"C\""));
}

// What fits is an int: by its range, or by what loops and conditions say.
TEST(Ranges, SayWhatCardsComputeInInts) {
  const struct {
    const char *body, *has;
  } cases[] = {
      {"  for i in range(n):\n    for k in range(8):\n      A[i * 8 + k] = B[p[i] + k]\n",
       "A[(long long)i * 8 + k] = B[p[i] + k];"},
      {"  for i in range(n):\n    for k in range(8):\n      A[i * 8 + k * 2 + 1] = 0.0\n",
       "A[(long long)i * 8 + (k * 2 + 1)] = 0.0f;"},
      {"  for i in range(n):\n    for j in range(p[i + 1] - p[i]):\n      A[p[i] + j] = 0.0\n", "A[p[i] + j] = 0.0f;"},
      {"  for i in range(n):\n    for j in range(p[i + 1] - p[i]):\n      A[p[i] + j + m] = 0.0\n",
       "A[(long long)(p[i] + j) + m] = 0.0f;"},
      {"  for i in range(n):\n    for j in range((p[i + 1] - p[i]) // 4):\n      A[p[i] + j * 4] = 0.0\n",
       "A[p[i] + j * 4] = 0.0f;"},
      {"  for i in range(n):\n    if q[i] >= 0:\n      if q[i] < 128:\n        A[q[i] * 64] = 0.0\n", "A[q[i] * 64] ="},
      {"  for i in range(n):\n    if q[i] < 128:\n      A[q[i] * 64] = 0.0\n", "A[(long long)q[i] * 64] ="},
      {"  for i in range(n):\n    Z[i] = q[i] - 1\n", "Z[i] = (long long)q[i] - 1;"},
      {"  for i in range(n):\n    if q[i] - 1 < n:\n      Z[i] = 0\n", "if (q[i] < n + 1) {"},
      {"  for i in range(n):\n    if q[i] - 65537 < n:\n      Z[i] = 0\n", "if ((long long)q[i] - 65537 < n) {"},
      {"  for i in range(n):\n    if q[i] + 2 >= m:\n      Z[i] = 0\n", "if (q[i] >= m - 2) {"},
      {"  for i in range(n):\n    Z[i] = -q[i]\n", "Z[i] = -(long long)q[i];"},
      {"  for i in range(n):\n    Z[i] = p[i] - 1 + select(q[i] > 0, i, m)\n",
       "Z[i] = (long long)(p[i] - 1) + (q[i] > 0 ? i : m);"},
      {"  for i in range(n):\n    let x = w[i]\n    Z[i] = x * 2\n", "const long long x = w[i];"},
      {"  for i in range(n):\n    let x = w[i] % 7\n    Z[i] = x * 2\n", "const int x = weft_modulo(w[i], 7);"},
      {"  for i in range(n):\n    Z[i] = i // 3 + p[i] % 5 + (p[i] - m) // 3\n",
       "weft_quotient(i, 3) + weft_rest(p[i], 5) + weft_floor_div(p[i] - m, 3)"},
      {"  for i in range(n):\n    allocate c[1]: int32 in register\n    c[0] = p[i]\n    if i < m:\n      c[0] = i + "
       "1\n"
       "    Z[i] = c[0] // 2\n",
       "weft_quotient(c[0], 2)"},
      {"  for i in range(n):\n    allocate c[1]: int32 in register\n    c[0] = p[i] - 1\n    if i < m:\n      c[0] = "
       "i\n"
       "    Z[i] = c[0] // 2\n",
       "weft_floor_div(c[0], 2)"},
      {"  for i in range(n * m):\n    Z[i] = 0\n", "for (long long i = 0; i < (long long)n * m; ++i)"},
      {"  for i in range(n) [bind=threadIdx.x]:\n    Z[i] = 0\n", "for (int i = threadIdx.x; i < n; i += blockDim.x)"},
      // A step behind the last iteration may not fit.
      {"  for i in range(n) [bind=blockIdx.x]:\n    Z[i] = 0\n", "  const int i = int(weft_at_i);"},
  };
  for (const auto& c : cases) {
    const std::string code = cuda_of(c.body);
    EXPECT_NE(code.find(c.has), code.npos) << c.has << "\n" << code;
  }
}

}  // namespace
}  // namespace weft::loop
