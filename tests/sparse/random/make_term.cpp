#include <algorithm>

#include "tests/sparse/random/make_program.h"

namespace weft::sparse::random {
namespace {

// Of divisors, how many percent may be anything, 0 and below included.
constexpr int kAnyDivisors = 15;

// 1 and more.
Term make_divisor(Random& random, int depth, const std::function<Term(char type)>& leaf) {
  if (random.chance(kAnyDivisors)) return make_term(random, 'i', depth, leaf);
  if (random.chance(70)) return literal(random.pick({1, 2, 2, 3, 4, 4, 7, 8}));
  const Term any = make_term(random, 'i', depth, leaf);
  if (random.chance(50)) return operation("max", {any, literal(1)});
  return operation("+", {operation("abs", {any}), literal(1)});
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
    operands.push_back(divides && operands.size() == 1 ? make_divisor(random, left, leaf)
                                                       : make_term(random, operand, left, leaf));
  }
  return {.kind = Term::Kind::operation, .type = op.result, .op = &op, .operands = std::move(operands)};
}

}  // namespace weft::sparse::random
