// Integer division: one meaning for numbers, code and proofs, and what happens where there is no quotient.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loop/codegen/printers.h"
#include "loop/facts.h"
#include "loop/interpret.h"
#include "loop/parse.h"
#include "loop/passes.h"
#include "loop/threads.h"
#include "weft/error.h"

namespace weft::loop {
namespace {

int64_t floor_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

Expr divided_in(const std::string& text) {
  Cursor line(text, 1, 0);
  Expr e = parse_expr(
      line, {.variables = {"a", "b", "i", "n"}, .buffers = {{"X", {Type::integer, 1}}, {"F", {Type::real, 1}}}});
  line.expect_end();
  return e;
}

int64_t number_of(const Expr& e, std::map<std::string, int64_t> variables) {
  Memory memory{.scalars = std::move(variables)};
  return Interpreter(memory, [](const std::string&, const std::vector<int64_t>&) { return std::nullopt; }).integer(e);
}

TEST(Division, RoundsDownAndLeavesTheSignOfTheDivisor) {
  EXPECT_EQ(floor_div(7, -2), Expr(-4));
  EXPECT_EQ(modulo(7, -2), Expr(-1));
  const Expr a = variable("a"), b = variable("b");
  for (int64_t x = -9; x <= 9; ++x)
    for (int64_t y = -4; y <= 4; ++y) {
      if (y == 0) continue;
      const int64_t quotient = floor_of(x, y), rest = x - quotient * y;
      EXPECT_EQ(floor_div(x, y), Expr(quotient)) << x << " // " << y;
      EXPECT_EQ(modulo(x, y), Expr(rest)) << x << " % " << y;
      EXPECT_EQ(number_of(floor_div(a, b), {{"a", x}, {"b", y}}), quotient) << x << " // " << y;
      EXPECT_EQ(number_of(modulo(a, b), {{"a", x}, {"b", y}}), rest) << x << " % " << y;
    }
}

TEST(Division, IsNotFoldedWhereThereIsNoQuotient) {
  EXPECT_EQ(to_text(floor_div(5, 0)), "5 // 0");
  EXPECT_EQ(to_text(modulo(5, 0)), "5 % 0");
  EXPECT_EQ(to_text(floor_div(Expr(INT64_MIN), -1)), "-9223372036854775808 // -1");
  EXPECT_EQ(modulo(Expr(INT64_MIN), -1), Expr(0));
  // What divides by anything is not left out, either.
  EXPECT_EQ(to_text(divided_in("a // b * 0")), "a // b * 0");
  EXPECT_EQ(to_text(divided_in("a % b % 1")), "a % b % 1");
  EXPECT_EQ(divided_in("a // 3 * 0"), Expr(0));
  EXPECT_EQ(divided_in("a % -1"), Expr(0));
}

TEST(Division, OfNumbersThatHaveNoQuotientIsAnError) {
  for (const char* text : {"a // b", "a % b"})
    EXPECT_THROW(number_of(divided_in(text), {{"a", 1}, {"b", 0}}), Error) << text;
  EXPECT_THROW(number_of(divided_in("a // b"), {{"a", INT64_MIN}, {"b", -1}}), Error);
  EXPECT_EQ(number_of(divided_in("a % b"), {{"a", INT64_MIN}, {"b", -1}}), 0);
}

constexpr const char* kChecked = "checked(X[i] // a, it(\"X[u] // q\", u in U, v in V), i * 4 + n)";

TEST(Division, ThatMayFailIsReadBackAsItIsPrinted) {
  const Expr e = divided_in(kChecked);
  EXPECT_EQ(to_text(e), kChecked);
  // To people the division alone, with the brackets that it needs.
  EXPECT_EQ(to_words(e), "X[i] // a");
  EXPECT_EQ(to_words(divided_in(fmt::format("n * {}", kChecked))), "n * (X[i] // a)");
  ASSERT_NE(e->failure, nullptr);
  EXPECT_EQ(*e->failure, (Failure{"it", "", "X[u] // q", {{"u", "U"}, {"v", "V"}}}));
  EXPECT_TRUE((e * 3 + 1)->may_fail);
  EXPECT_FALSE(divided_in("X[i] // a")->may_fail);
  EXPECT_EQ(e, divided_in(kChecked));
  EXPECT_FALSE(e == divided_in("checked(X[i] // a, it(\"X[u] // q\", u in U), i * 4 + n)"));
  // By a literal it never fails.
  EXPECT_EQ(to_text(substitute(e, {{"a", 3}})), "X[i] // 3");
  EXPECT_EQ(to_text(substitute(e, {{"a", -3}})), "X[i] // -3");
  EXPECT_TRUE(substitute(e, {{"a", 0}})->may_fail);
  EXPECT_TRUE(substitute(e, {{"a", -1}})->may_fail);
  for (const char* text : {"checked(a + 1, it(\"a\"))", "checked(a // b, it)", "checked(a // b, it(\"a // b\"), F[0])"})
    EXPECT_THROW(divided_in(text), Error) << text;
}

TEST(Division, ThatFailsIs0AndSaysWhere) {
  std::map<Failure, std::vector<std::vector<int64_t>>> failed;
  Memory memory{.scalars = {{"a", 0}, {"n", 2}}, .buffers = {{"X", {5, 6}}}};
  Interpreter run(
      memory, [](const std::string&, const std::vector<int64_t>& at) { return at[0]; },
      [&](const Failure& failure, const std::vector<int64_t>& at) { failed[failure].push_back(at); });
  run.set("i", 1);
  EXPECT_EQ(run.integer(divided_in(kChecked)), 0);
  run.set("a", -2);
  EXPECT_EQ(run.integer(divided_in(kChecked)), -3);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed.begin()->second, (std::vector<std::vector<int64_t>>{{6, 0}}));
}

TEST(Division, IsLeftInWhatIsMadeShorter) {
  const Facts none;
  for (const std::string& division : {std::string(kChecked), std::string("X[checked(a // b, it(\"a // b\"))]")})
    for (const char* text : {"{0} - {0}", "({0} * 4 + 3) % 4", "select({0} > {0} - 1, a, b)", "min({0}, {0} + 1)"}) {
      const Expr e = divided_in(fmt::format(fmt::runtime(text), division));
      EXPECT_TRUE(simplify(e, none)->may_fail) << to_text(e);
    }
  // What is not evaluated does not fail.
  EXPECT_EQ(to_text(simplify(divided_in(fmt::format("select(1 < 2, a, {})", kChecked)), none)), "a");
  // Nor what divides by 1 and more.
  Facts positive;
  positive.push_condition(divided_in("a > 0"));
  EXPECT_EQ(to_text(simplify(divided_in(kChecked), positive)), "X[i] // a");
}

// Values of i in 0 to 4 and of d = j - 2, j in 0 to 4: what is proven of them holds for each.
TEST(Division, ProvesNothingFalseOfAnyDivisor) {
  Facts facts;
  facts.push_loop("i", 5);
  facts.push_loop("j", 5);
  const Expr i = variable("i"), d = variable("j") - 2;
  std::vector<Expr> values;
  for (const Expr& x : {i, i - 2})
    for (const Expr& y : {d, Expr(-3), Expr(3), Expr(-1)})
      for (const Op op : {Op::floor_div, Op::modulo})
        for (const int factor : {-6, -1, 1, 3}) values.push_back(operation(op, {x, y}) * factor);
  for (const Expr& value : values)
    for (int64_t bound = -8; bound <= 8; ++bound) {
      const bool at_most = facts.holds(less(value, bound + 1)), is_least = facts.holds(at_least(value, bound));
      const Expr simple = simplify(value + bound, facts);
      for (int64_t x = 0; x < 5; ++x)
        for (int64_t y = 0; y < 5; ++y) {
          if (y == 2 && uses(value, "j")) continue;  // by 0
          const int64_t is = number_of(value, {{"i", x}, {"j", y}});
          EXPECT_TRUE(!at_most || is <= bound) << to_text(value) << " <= " << bound << " at " << x << ", " << y;
          EXPECT_TRUE(!is_least || is >= bound) << to_text(value) << " >= " << bound << " at " << x << ", " << y;
          EXPECT_EQ(number_of(simple, {{"i", x}, {"j", y}}), is + bound) << to_text(value) << " is " << to_text(simple);
        }
    }
  // Inside of a loop its extent, and each factor of that, is 1 or more.
  const Expr n = variable("n"), m = variable("m");
  Facts loops(Function{.name = "f", .scalars = {"n", "m"}});
  EXPECT_FALSE(loops.is_positive(n));
  loops.push_loop("k", n * m);
  EXPECT_TRUE(loops.is_positive(n));
  EXPECT_TRUE(loops.holds(less(modulo(variable("k"), m), m)));
  EXPECT_FALSE(loops.is_positive(n - m));
}

std::string division_code_of(const std::string& body, bool cuda) {
  const Function f =
      parse_function("stage3 f(n, m):\n  X = flat(n): int32\n  Y = flat(n): int32\n  Z = flat(n): int64\n" + body);
  const Launches launches = split_launches(f);
  const std::string code = cuda ? cuda_module({split_threads(launches)}) : cpp_module({launches});
  return code.substr(code.find("extern \"C\""));
}

TEST(Division, AsksNothingInCodeWhereTheDivisorIsPositive) {
  for (const bool cuda : {false, true}) {
    const auto expect = [&](const std::string& value, const std::string& has) {
      const std::string code =
          division_code_of("  for i in range(n):\n    for j in range(m):\n      Z[i] = " + value + "\n", cuda);
      EXPECT_NE(code.find(has), code.npos) << code;
    };
    const std::string x = cuda ? "X[i]" : "(long long)X[i]", y = cuda ? "Y[i]" : "(long long)Y[i]";
    expect("X[i] // 4", "weft_floor_div(" + x + ", 4)");
    expect("X[i] % m", "weft_modulo(" + x + ", m)");  // it has an iteration j
    expect("select(Y[i] > 0, X[i] // Y[i], 0)", "weft_floor_div(");
    expect("X[i] // -4", "weft_any_floor_div(" + x + ", -4)");
    expect("checked(X[i] % Y[i], f(\"X[a] % Y[a]\", a in A), i)",
           "weft_any_modulo(" + x + ", " + y + ", weft_failures + 0, i)");
  }
}

}  // namespace
}  // namespace weft::loop
