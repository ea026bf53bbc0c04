#include <algorithm>

#include "tests/sparse/random/make_program.h"

namespace weft::sparse::random {
namespace {

// Of divisors, how many percent may be anything, 0 and below included.
constexpr int kAnyDivisors = 15;

// Of arguments of functions, how many percent may be anything.
constexpr int kAnyArguments = 10;

// 1 and more.
Term make_divisor(Random& random, int depth, const std::function<Term(char type)>& leaf) {
  if (random.chance(kAnyDivisors)) return make_term(random, 'i', depth, leaf);
  if (random.chance(70)) return literal(random.pick({1, 2, 2, 3, 4, 4, 7, 8}));
  const Term any = make_term(random, 'i', depth, leaf);
  if (random.chance(50)) return operation("max", {any, literal(1)});
  return operation("+", {operation("abs", {any}), literal(1)});
}

// What a function has a value at, of a size that its result can be added to others.
Term make_argument(Random& random, std::string_view function, size_t place, int depth,
                   const std::function<Term(char type)>& leaf) {
  const Term any = make_term(random, 'r', depth, leaf);
  const Term above_zero = random.chance(50) ? operation("+", {operation("abs", {any}), real_literal(1)})
                                            : operation("max", {any, real_literal(0.5)});
  if (function == "exp") return operation("min", {any, real_literal(3)});
  if (function == "sqrt") return operation("abs", {any});
  if (function == "log") return above_zero;
  if (function == "pow" && place == 0) return above_zero;
  if (function == "pow") return real_literal(random.pick({0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 1.5}));
  if (function == "/" && place == 1)
    return random.chance(60) ? real_literal(random.pick({2.0, 4.0, -2.0, 3.0, 0.5, -7.0})) : above_zero;
  return any;
}

}  // namespace

Term make_term(Random& random, char type, int depth, const std::function<Term(char type)>& leaf) {
  const bool is_leaf = type != 'b' && (depth == 0 || random.chance(20));
  if (is_leaf) return leaf(type);
  const size_t choice = random.pick_weighted(kOperations, [&](const Operation& op) {
    // The deepest conditions compare leaves.
    const bool fits = op.result == type && (depth > 0 || op.operands.find('b') == op.operands.npos);
    return fits ? op.weight : 0;
  });
  const Operation& op = kOperations[choice];
  std::vector<Term> operands;
  const bool divides = op.symbol == "//" || op.symbol == "%";
  for (const char operand : op.operands) {
    const int left = std::max(depth - 1, 0);
    if (divides && operands.size() == 1)
      operands.push_back(make_divisor(random, left, leaf));
    else if (op.rounding == Rounding::function && !random.chance(kAnyArguments))
      operands.push_back(make_argument(random, op.symbol, operands.size(), left, leaf));
    else
      operands.push_back(make_term(random, operand, left, leaf));
  }
  return {.kind = Term::Kind::operation, .type = op.result, .op = &op, .operands = std::move(operands)};
}

}  // namespace weft::sparse::random
