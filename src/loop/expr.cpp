#include "loop/expr.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace weft::loop {
namespace {

Type type_of(Op op, const std::vector<Expr>& operands) {
  switch (op) {
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not: return Type::boolean;
    case Op::to_real: return Type::real;
    case Op::find:
    case Op::upper_bound: return Type::integer;
    case Op::select: return std::max(operands[1]->type, operands[2]->type);
    default: {
      if (is_of_reals(op)) return Type::real;
      Type widest = Type::integer;
      for (const Expr& operand : operands) widest = std::max(widest, operand->type);
      return widest;
    }
  }
}

// The number that the operation of two integers is, if it fits.
bool fold(Op op, int64_t a, int64_t b, int64_t* result) {
  switch (op) {
    case Op::add: return !__builtin_add_overflow(a, b, result);
    case Op::subtract: return !__builtin_sub_overflow(a, b, result);
    case Op::multiply: return !__builtin_mul_overflow(a, b, result);
    case Op::floor_div:
    case Op::modulo: return can_divide(op, a, b) && (*result = divided(op, a, b), true);
    case Op::minimum: return *result = std::min(a, b), true;
    case Op::maximum: return *result = std::max(a, b), true;
    default: return false;
  }
}

Expr fold_integers(Op op, const std::vector<Expr>& operands) {
  int64_t x = 0, y = 0, result = 0;
  if (operands.size() == 1 && is_integer(operands[0], &x)) {
    if (op == Op::negate) return -x;
    if (op == Op::absolute) return std::abs(x);
    return {};
  }
  if (operands.size() != 2 || operands[0]->type != Type::integer || operands[1]->type != Type::integer) return {};
  const Expr &a = operands[0], &b = operands[1];
  const bool left = is_integer(a, &x), right = is_integer(b, &y);
  // The least number is left as it is written: its negative does not fit. What may fail is not left out.
  if (left && right && fold(op, x, y, &result) && result != INT64_MIN) return result;
  if ((op == Op::add || op == Op::subtract) && right && y == 0) return a;
  if (op == Op::add && left && x == 0) return b;
  if ((op == Op::multiply || op == Op::floor_div) && right && y == 1) return a;
  if (op == Op::multiply && left && x == 1) return b;
  if (op == Op::multiply && ((left && x == 0) || (right && y == 0)) && !divides_by_any(left && x == 0 ? b : a))
    return 0;
  if (op == Op::modulo && right && (y == 1 || y == -1) && !divides_by_any(a)) return 0;
  return {};
}

Expr make(Node node) {
  node.may_fail = node.failure != nullptr ||
                  std::any_of(node.operands.begin(), node.operands.end(), [](const Expr& x) { return x->may_fail; });
  return Expr(std::make_shared<const Node>(std::move(node)));
}

bool is_same(const std::shared_ptr<const Failure>& a, const std::shared_ptr<const Failure>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

Expr::Expr(int64_t value) : node_(std::make_shared<const Node>(Node{.integer = value})) {}

bool operator==(const Expr& a, const Expr& b) {
  if (a.node_ == b.node_) return true;
  if (!a || !b) return false;
  const bool same_real = a->real == b->real || (a->real != a->real && b->real != b->real);
  return a->op == b->op && a->type == b->type && a->integer == b->integer && same_real && a->name == b->name &&
         is_same(a->failure, b->failure) && a->operands == b->operands;
}

Expr real(double value) { return make({.op = Op::real_literal, .type = Type::real, .real = value}); }

Expr variable(std::string name, Type type) { return make({.op = Op::variable, .type = type, .name = std::move(name)}); }

Expr load(std::string buffer, std::vector<Expr> indices, Type type) {
  return make({.op = Op::load, .type = type, .name = std::move(buffer), .operands = std::move(indices)});
}

Expr operation(Op op, std::vector<Expr> operands) {
  if (Expr folded = fold_integers(op, operands)) return folded;
  const Type type = type_of(op, operands);
  return make({.op = op, .type = type, .operands = std::move(operands)});
}

Expr select(Expr condition, Expr a, Expr b) {
  return operation(Op::select, {std::move(condition), std::move(a), std::move(b)});
}

Expr search(Op op, std::string buffer, std::vector<Expr> start, Expr count, Expr x) {
  start.push_back(std::move(count));
  start.push_back(std::move(x));
  return make({.op = op, .type = Type::integer, .name = std::move(buffer), .operands = std::move(start)});
}

Expr operator+(Expr a, Expr b) { return operation(Op::add, {std::move(a), std::move(b)}); }
Expr operator-(Expr a, Expr b) { return operation(Op::subtract, {std::move(a), std::move(b)}); }
Expr operator*(Expr a, Expr b) { return operation(Op::multiply, {std::move(a), std::move(b)}); }
Expr floor_div(Expr a, Expr b) { return operation(Op::floor_div, {std::move(a), std::move(b)}); }
Expr modulo(Expr a, Expr b) { return operation(Op::modulo, {std::move(a), std::move(b)}); }
Expr checked_division(Op op, Expr a, Expr b, std::shared_ptr<const Failure> failure, std::vector<Expr> at) {
  int64_t divisor = 0;
  std::vector<Expr> operands{std::move(a), std::move(b)};
  if (is_integer(operands[1], &divisor) && can_divide(op, INT64_MIN, divisor))
    return operation(op, std::move(operands));
  operands.insert(operands.end(), std::make_move_iterator(at.begin()), std::make_move_iterator(at.end()));
  return make({.op = op, .operands = std::move(operands), .failure = std::move(failure)});
}
Expr less(Expr a, Expr b) { return operation(Op::less, {std::move(a), std::move(b)}); }
Expr at_least(Expr a, Expr b) { return operation(Op::greater_equal, {std::move(a), std::move(b)}); }

bool is_literal(const Expr& e, int64_t value) { return e && e->op == Op::integer_literal && e->integer == value; }

bool is_integer(const Expr& e, int64_t* value) {
  if (!e || e->op != Op::integer_literal) return false;
  if (value != nullptr) *value = e->integer;
  return true;
}

bool is_variable(const Expr& e, std::string_view name) { return e && e->op == Op::variable && e->name == name; }
bool is_search(Op op) { return op == Op::find || op == Op::upper_bound; }
bool is_division(Op op) { return op == Op::floor_div || op == Op::modulo; }

bool is_of_reals(Op op) {
  switch (op) {
    case Op::divide:
    case Op::power:
    case Op::exponential:
    case Op::logarithm:
    case Op::hyperbolic_tangent:
    case Op::sigmoid:
    case Op::square_root: return true;
    default: return false;
  }
}

bool divides_by_any(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& node) {
    int64_t divisor = 0;
    if (is_division(node->op))
      found |= !is_integer(node->operands[1], &divisor) || !can_divide(node->op, INT64_MIN, divisor);
  });
  return found;
}

bool can_divide(Op op, int64_t a, int64_t b) { return b != 0 && (b != -1 || op == Op::modulo || a != INT64_MIN); }

int64_t divided(Op op, int64_t a, int64_t b) {
  if (b == -1) return op == Op::modulo ? 0 : -a;
  const int64_t rest = a % b;
  const bool is_rounded = rest != 0 && (rest < 0) != (b < 0);  // towards 0: what is wanted is one less
  if (op == Op::modulo) return is_rounded ? rest + b : rest;
  return a / b - (is_rounded ? 1 : 0);
}

void visit(const Expr& e, const std::function<void(const Expr&)>& call) {
  if (!e) return;
  for (const Expr& operand : e->operands) visit(operand, call);
  call(e);
}

Expr with_operands(const Expr& e, std::vector<Expr> operands) {
  if (operands == e->operands) return e;
  if (e->op == Op::load || is_search(e->op))
    return make({.op = e->op, .type = e->type, .name = e->name, .operands = std::move(operands)});
  if (e->failure == nullptr) return operation(e->op, std::move(operands));
  return checked_division(e->op, operands[0], operands[1], e->failure, {operands.begin() + 2, operands.end()});
}

Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& call) {
  if (!e) return e;
  std::vector<Expr> operands;
  operands.reserve(e->operands.size());
  for (const Expr& operand : e->operands) operands.push_back(rewrite(operand, call));
  return call(with_operands(e, std::move(operands)));
}

Expr substitute(const Expr& e, const Substitution& values) {
  if (values.empty()) return e;
  return rewrite(e, [&](const Expr& node) {
    if (node->op != Op::variable) return node;
    const auto found = values.find(node->name);
    return found == values.end() ? node : found->second;
  });
}

Names variables_of(const Expr& e) {
  Names names;
  visit(e, [&](const Expr& node) {
    if (node->op == Op::variable) names.insert(node->name);
  });
  return names;
}

bool uses(const Expr& e, const std::string& variable) { return variables_of(e).contains(variable); }

bool loads_from(const Expr& e, const std::string& buffer) {
  bool found = false;
  visit(e, [&](const Expr& node) { found |= (node->op == Op::load || is_search(node->op)) && node->name == buffer; });
  return found;
}

bool keeps_failures(const Expr& from, const Expr& to) {
  if (!from->may_fail) return true;
  bool keeps = true;
  visit(from, [&](const Expr& division) {
    if (division->failure == nullptr) return;
    bool found = false;
    visit(to, [&](const Expr& node) { found |= node == division; });
    keeps &= found;
  });
  return keeps;
}

}  // namespace weft::loop
