// Random expressions: what the compiler makes of each, folded, simplified, as a sum, printed and read again, has the
// value that a plain evaluator gives, at random values of all that it names; what is proven of it, holds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "loop/facts.h"
#include "loop/interpret.h"
#include "loop/linear.h"
#include "loop/parse.h"
#include "tests/sparse/random/make_program.h"
#include "tests/sparse/random/number.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft::sparse::random {
namespace {

using loop::Expr;
using loop::Type;

// P has n + 1 elements of 0 to n, Q five of any, X six reals.
struct Buffer {
  const char* name;
  char type;
  int64_t size;  // -1: n + 1
};
constexpr Buffer kBuffers[] = {{"P", 'i', -1}, {"Q", 'i', 5}, {"X", 'r', 6}};

// Numbers for all names.
struct Sample {
  std::map<std::string, int64_t> scalars;  // parameters and loop variables
  std::map<std::string, std::vector<double>> buffers;
};

Sample make_sample(Random& random) {
  Sample sample;
  const int64_t n = random.between(1, 7), m = random.between(1, 9);
  sample.scalars = {{"n", n}, {"m", m}, {"i", random.below(n)}, {"j", random.below(4)}, {"k", random.below(m)}};
  for (const Buffer& buffer : kBuffers) {
    auto& values = sample.buffers[buffer.name];
    values.resize(static_cast<size_t>(buffer.size < 0 ? n + 1 : buffer.size));
    for (double& value : values)
      value = static_cast<double>(buffer.size < 0 ? random.between(0, n) : random.between(-6, 6));
  }
  return sample;
}

// An index that lies within.
Term make_index(Random& random, int64_t size, const std::function<Term(char)>& leaf) {
  if (size < 0) return random.pick({name("i"), operation("+", {name("i"), literal(1)}), name("n"), literal(0)});
  switch (random.below(4)) {
    case 0: return name("j");
    case 1: return literal(random.below(size));
    case 2: return operation("%", {leaf('i'), literal(size)});
    default: return operation("min", {operation("max", {leaf('i'), literal(0)}), literal(size - 1)});
  }
}

Term make_leaf(Random& random, char type, int depth) {
  const auto leaf = [&](char t) { return make_leaf(random, t, depth + 1); };
  std::vector<const Buffer*> fitting;
  for (const Buffer& buffer : kBuffers)
    if (buffer.type == type) fitting.push_back(&buffer);
  const int64_t choice = depth > 2 ? 50 : random.below(100);
  if (choice < (type == 'r' ? 60 : 25)) {
    const Buffer& from = *random.pick(fitting);
    return load(from.name, {make_index(random, from.size, leaf)}, type);
  }
  if (type == 'r') return real_literal(static_cast<double>(random.between(-4, 4)));
  if (choice < 70) return name(random.pick({"i", "j", "k", "n", "m"}));
  const int64_t large = random.pick({int64_t{1000003}, int64_t{-65536}, int64_t{1} << 31});
  return literal(random.chance(4) ? large : random.between(-9, 9));
}

Number value_in(const Term& term, const Sample& sample) {
  const Meaning meaning{
      .variable = [&](const std::string& name) { return static_cast<double>(sample.scalars.at(name)); },
      .load =
          [&](const std::string& buffer, const std::vector<int64_t>& at) {
            return number(sample.buffers.at(buffer).at(static_cast<size_t>(at[0])));
          }};
  return value_of(term, meaning);
}

// What the interpreter says of an expression of the compiler.
double value_in(const Expr& e, const Sample& sample) {
  loop::Memory memory{.scalars = sample.scalars, .buffers = sample.buffers};
  loop::Interpreter interpreter(memory, [](const std::string&, const std::vector<int64_t>& at) { return at[0]; });
  if (e->type == Type::boolean) return interpreter.condition(e) ? 1 : 0;
  return e->type == Type::integer ? static_cast<double>(interpreter.integer(e)) : interpreter.real(e);
}

Expr parsed(const std::string& text) {
  loop::Symbols symbols;
  symbols.variables = {"i", "j", "k", "n", "m"};
  for (const Buffer& buffer : kBuffers)
    symbols.buffers[buffer.name] = {buffer.type == 'i' ? Type::integer : Type::real, 1};
  loop::Cursor line(text, 1, 0);
  Expr e = loop::parse_expr(line, symbols);
  line.expect_end();
  return e;
}

loop::Facts facts_with(const std::vector<Expr>& conditions) {
  loop::Function function{.name = "f", .scalars = {"n", "m"}};
  const Expr n = loop::variable("n");
  function.buffers = {{.name = "P", .dtype = DType::int32, .size = n + 1, .least = 0, .most = n},
                      {.name = "Q", .dtype = DType::int32, .size = 5},
                      {.name = "X", .dtype = DType::fp32, .size = 6}};
  loop::Facts facts(function);
  facts.push_loop("i", n);
  facts.push_loop("j", 4);
  facts.push_loop("k", loop::variable("m"));
  for (const Expr& condition : conditions) facts.push_condition(condition);
  return facts;
}

struct Expression {
  Term term;
  std::vector<Term> conditions;  // known to hold
};

Expression make_expression(Random& random) {
  const auto leaf = [&](char type) { return make_leaf(random, type, 0); };
  Expression e;
  e.term = make_term(random, random.pick({'i', 'i', 'i', 'b', 'r'}), static_cast<int>(random.between(1, 4)), leaf);
  for (int64_t c = random.pick({0, 0, 1, 2}); c > 0; --c) e.conditions.push_back(make_term(random, 'b', 2, leaf));
  return e;
}

// "" where all is right.
std::string problem_of(const Expression& expression, Random random) {
  const Expr e = parsed(to_text(expression.term));
  std::vector<Expr> conditions;
  for (const Term& condition : expression.conditions) conditions.push_back(parsed(to_text(condition)));
  const loop::Facts facts = facts_with(conditions);
  const Expr simple = loop::simplify(e, facts);
  std::vector<std::pair<const char*, Expr>> forms = {{"read", e},
                                                     {"simplified", simple},
                                                     {"printed and read again", parsed(loop::to_text(simple))},
                                                     {"simplified twice", loop::simplify(simple, facts)}};
  if (e->type == Type::integer) forms.emplace_back("as a sum", loop::expr_of(loop::linear_of(e)));
  const bool holds = e->type == Type::boolean && facts.holds(e), fails = e->type == Type::boolean && facts.fails(e);
  const bool nonnegative = e->type == Type::integer && facts.is_nonnegative(e);
  for (int s = 0; s < 8; ++s) {
    const Sample sample = make_sample(random);
    Number known_value;
    try {
      bool known = true;
      for (const Term& condition : expression.conditions) known = known && value_in(condition, sample).value != 0;
      if (!known) continue;
      known_value = value_in(expression.term, sample);
    } catch (const std::runtime_error&) {  // Unusable, Fails
      continue;
    }
    std::string at;
    for (const auto& [name, value] : sample.scalars) at += fmt::format(" {}={}", name, value);
    const double want = known_value.value;
    for (const auto& [form, expr] : forms)
      if (const double got = value_in(expr, sample); !(std::fabs(got - want) <= known_value.error))
        return fmt::format("{}: {} is {}, not {}, at{}", form, loop::to_text(expr), got, want, at);
    if ((holds && want == 0) || (fails && want != 0) || (nonnegative && want < 0))
      return fmt::format("proven {}, and is {}, at{}",
                         holds   ? "to hold"
                         : fails ? "to fail"
                                 : "not negative",
                         want, at);
  }
  return {};
}

std::string tried_problem_of(const Expression& expression, uint64_t seed) {
  try {
    return problem_of(expression, Random(seed));
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

// An operand in the place of an operation, as long as something is wrong.
Expression smallest(Expression best, uint64_t seed) {
  const std::function<bool(Term&)> shrink = [&](Term& term) {
    const Term whole = term;
    for (const Term& operand : whole.operands) {
      if (operand.type != whole.type || whole.kind != Term::Kind::operation) continue;
      term = operand;
      if (!tried_problem_of(best, seed).empty()) return true;
      term = whole;
    }
    for (Term& operand : term.operands)
      if (shrink(operand)) return true;
    return false;
  };
  while (!best.conditions.empty()) {
    Expression fewer = best;
    fewer.conditions.pop_back();
    if (tried_problem_of(fewer, seed).empty()) break;
    best = fewer;
  }
  while (shrink(best.term)) {
  }
  return best;
}

TEST(RandomExpressions, HaveTheirValueInEveryForm) {
  const std::vector<uint64_t> seeds = testing::case_seeds(testing::kUnderSanitizer ? 1000 : 20000);
  for (size_t i = 0, failures = 0; i < seeds.size() && failures < testing::most_failures(); ++i) {
    Random random(seeds[i]);
    const Expression e = make_expression(random);
    if (tried_problem_of(e, seeds[i]).empty()) continue;
    const Expression small = smallest(e, seeds[i]);
    std::string known;
    for (const Term& condition : small.conditions) known += "\nwhere " + to_text(condition);
    ADD_FAILURE() << to_text(small.term) << known << "\n"
                  << tried_problem_of(small, seeds[i]) << "\n"
                  << testing::only_case(i);
    ++failures;
  }
}

}  // namespace
}  // namespace weft::sparse::random
