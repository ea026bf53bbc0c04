#include "tests/sparse/random/term.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/sparse/random/number.h"

namespace weft::sparse::random {
namespace {

using enum Operation::Form;
using enum Rounding;
using X = const double*;

double divided(X x) {
  if (x[1] == 0) throw Fails("division by zero");
  const auto a = static_cast<int64_t>(x[0]), b = static_cast<int64_t>(x[1]);
  const int64_t quotient = a / b;
  return static_cast<double>(a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);
}

}  // namespace

const std::vector<Operation> kOperations = {
    {"+", infix, "ii", 'i', [](X x) { return x[0] + x[1]; }, 9},
    {"-", infix, "ii", 'i', [](X x) { return x[0] - x[1]; }, 9},
    {"*", infix, "ii", 'i', [](X x) { return x[0] * x[1]; }, 7},
    {"//", infix, "ii", 'i', divided, 5},
    {"%", infix, "ii", 'i', [](X x) { return x[0] - divided(x) * x[1]; }, 5},
    {"min", call, "ii", 'i', [](X x) { return std::min(x[0], x[1]); }, 4},
    {"max", call, "ii", 'i', [](X x) { return std::max(x[0], x[1]); }, 4},
    {"abs", call, "i", 'i', [](X x) { return std::fabs(x[0]); }, 2},
    {"-", prefix, "i", 'i', [](X x) { return -x[0]; }, 3},
    {"select", call, "bii", 'i', [](X x) { return x[0] != 0 ? x[1] : x[2]; }, 4},
    {"+", infix, "rr", 'r', [](X x) { return x[0] + x[1]; }, 9, sum},
    {"-", infix, "rr", 'r', [](X x) { return x[0] - x[1]; }, 9, sum},
    {"*", infix, "rr", 'r', [](X x) { return x[0] * x[1]; }, 9, product},
    {"+", infix, "ir", 'r', [](X x) { return x[0] + x[1]; }, 1, sum},
    {"*", infix, "ri", 'r', [](X x) { return x[0] * x[1]; }, 1, product},
    {"min", call, "rr", 'r', [](X x) { return std::min(x[0], x[1]); }, 3, choice},
    {"max", call, "rr", 'r', [](X x) { return std::max(x[0], x[1]); }, 3, choice},
    {"abs", call, "r", 'r', [](X x) { return std::fabs(x[0]); }, 2, choice},
    {"-", prefix, "r", 'r', [](X x) { return -x[0]; }, 2, choice},
    {"/", infix, "rr", 'r', [](X x) { return x[0] / x[1]; }, 2, function},
    {"exp", call, "r", 'r', [](X x) { return std::exp(x[0]); }, 1, function},
    {"log", call, "r", 'r', [](X x) { return std::log(x[0]); }, 1, function},
    {"tanh", call, "r", 'r', [](X x) { return std::tanh(x[0]); }, 1, function},
    {"sigmoid", call, "r", 'r', [](X x) { return 1 / (1 + std::exp(-x[0])); }, 1, function},
    {"sqrt", call, "r", 'r', [](X x) { return std::sqrt(x[0]); }, 1, function},
    {"pow", call, "rr", 'r', [](X x) { return std::pow(x[0], x[1]); }, 1, function},
    {"real", call, "i", 'r', [](X x) { return x[0]; }, 4, conversion},
    {"select", call, "brr", 'r', [](X x) { return x[0] != 0 ? x[1] : x[2]; }, 4, choice},
    {"<", infix, "ii", 'b', [](X x) { return double(x[0] < x[1]); }, 6},
    {"<=", infix, "ii", 'b', [](X x) { return double(x[0] <= x[1]); }, 4},
    {">", infix, "ii", 'b', [](X x) { return double(x[0] > x[1]); }, 4},
    {">=", infix, "ii", 'b', [](X x) { return double(x[0] >= x[1]); }, 4},
    {"==", infix, "ii", 'b', [](X x) { return double(x[0] == x[1]); }, 3},
    {"!=", infix, "ii", 'b', [](X x) { return double(x[0] != x[1]); }, 3},
    {"<", infix, "rr", 'b', [](X x) { return double(x[0] < x[1]); }, 2, comparison},
    {">=", infix, "rr", 'b', [](X x) { return double(x[0] >= x[1]); }, 2, comparison},
    {"==", infix, "rr", 'b', [](X x) { return double(x[0] == x[1]); }, 1, comparison},
    {"and", infix, "bb", 'b', [](X x) { return double(x[0] != 0 && x[1] != 0); }, 4},
    {"or", infix, "bb", 'b', [](X x) { return double(x[0] != 0 || x[1] != 0); }, 3},
    {"not", prefix, "b", 'b', [](X x) { return double(x[0] == 0); }, 3},
};

Term literal(int64_t value) { return {.value = static_cast<double>(value)}; }
Term real_literal(double value) { return {.type = 'r', .value = value}; }
Term name(std::string variable, char type) {
  return {.kind = Term::Kind::name, .type = type, .name = std::move(variable)};
}
Term load(std::string buffer, std::vector<Term> indices, char type) {
  return {.kind = Term::Kind::load, .type = type, .name = std::move(buffer), .operands = std::move(indices)};
}

Term operation(std::string_view symbol, std::vector<Term> operands) {
  std::string types;
  for (const Term& operand : operands) types += operand.type;
  const auto found = std::find_if(kOperations.begin(), kOperations.end(),
                                  [&](const Operation& op) { return op.symbol == symbol && op.operands == types; });
  if (found == kOperations.end()) throw std::logic_error(fmt::format("no operation {} of {}", symbol, types));
  return {.kind = Term::Kind::operation, .type = found->result, .op = &*found, .operands = std::move(operands)};
}

namespace {

std::string list(const std::vector<Term>& terms) {
  std::string text;
  for (const Term& term : terms) text += (text.empty() ? "" : ", ") + to_text(term);
  return text;
}

// As an operand of another: whatever is no leaf, stands within parentheses.
std::string closed(const Term& term) {
  const bool is_open = term.kind == Term::Kind::operation && term.op->form != call;
  return is_open ? "(" + to_text(term) + ")" : to_text(term);
}

}  // namespace

std::string to_text(const Term& term) {
  switch (term.kind) {
    case Term::Kind::literal: {
      if (term.type != 'r') return fmt::format("{}", int64_t(term.value));
      return term.value == std::floor(term.value) ? fmt::format("{:.1f}", term.value) : fmt::format("{}", term.value);
    }
    case Term::Kind::name: return term.name;
    case Term::Kind::load: return fmt::format("{}[{}]", term.name, list(term.operands));
    case Term::Kind::operation: break;
  }
  if (term.op->form == infix)
    return fmt::format("{} {} {}", closed(term.operands[0]), term.op->symbol, closed(term.operands[1]));
  if (term.op->form == call) return fmt::format("{}({})", term.op->symbol, list(term.operands));
  const Term& x = term.operands[0];
  if (term.op->symbol == "not") return fmt::format("not ({})", to_text(x));
  return x.kind == Term::Kind::literal ? fmt::format("-({})", to_text(x)) : "-" + closed(x);
}

namespace {

void collect(const Term& term, Term::Kind kind, std::set<std::string>& into) {
  if (term.kind == kind) into.insert(term.name);
  for (const Term& operand : term.operands) collect(operand, kind, into);
}

}  // namespace

std::set<std::string> names_in(const Term& term) {
  std::set<std::string> names;
  collect(term, Term::Kind::name, names);
  return names;
}

std::set<std::string> buffers_in(const Term& term) {
  std::set<std::string> names;
  collect(term, Term::Kind::load, names);
  return names;
}

std::vector<std::string> names_in_order(const Term& term) {
  if (term.kind == Term::Kind::name) return {term.name};
  std::vector<std::string> names;
  for (const Term& operand : term.operands)
    for (const std::string& name : names_in_order(operand))
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

namespace {

constexpr double kMostReal = 1e9, kMostInteger = 1e15;  // magnitudes beyond are unusable

// A value that is hardly known says nothing.
bool is_usable(const Number& x, char type) {
  if (type != 'r') return std::fabs(x.value) <= kMostInteger;
  return std::fabs(x.value) <= kMostReal && x.error * 16 <= std::max(1.0, x.size);
}

}  // namespace

Number value_of(const Term& term, const Meaning& meaning) {
  Number value;
  switch (term.kind) {
    case Term::Kind::literal: return number(term.value);
    case Term::Kind::name: return number(meaning.variable(term.name));
    case Term::Kind::load: {
      std::vector<int64_t> at;
      for (const Term& index : term.operands) at.push_back(static_cast<int64_t>(value_of(index, meaning).value));
      value = meaning.load(term.name, at);
      break;
    }
    case Term::Kind::operation: {
      Number x[3] = {};
      // What is not asked for is not computed.
      const std::string_view symbol = term.op->symbol;
      x[0] = value_of(term.operands[0], meaning);
      const bool holds = x[0].value != 0, stops = (symbol == "and" && !holds) || (symbol == "or" && holds);
      for (size_t i = 1; i < term.operands.size() && !stops; ++i)
        if (symbol != "select" || holds == (i == 1)) x[i] = value_of(term.operands[i], meaning);
      try {
        value = result_of(*term.op, x);
      } catch (const Fails&) {
        if (!meaning.fails) throw;
        meaning.fails(term);
        value = number(0);
      }
      break;
    }
  }
  if (!is_usable(value, term.type)) throw Unusable(fmt::format("{} is too large, or not known", to_text(term)));
  return value;
}

}  // namespace weft::sparse::random
