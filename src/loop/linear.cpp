#include "loop/linear.h"

#include <algorithm>

namespace weft::loop {

void Linear::add(const Expr& term, int64_t coefficient) {
  if (coefficient == 0) return;
  overflows |= coefficient == INT64_MIN;  // its negative does not fit
  for (auto it = terms.begin(); it != terms.end(); ++it) {
    if (!(it->first == term)) continue;
    overflows |= __builtin_add_overflow(it->second, coefficient, &it->second) || it->second == INT64_MIN;
    if (it->second == 0) terms.erase(it);
    return;
  }
  terms.emplace_back(term, coefficient);
}

void Linear::add(const Linear& other, int64_t factor) {
  int64_t product = 0;
  overflows |= other.overflows || __builtin_mul_overflow(other.constant, factor, &product) ||
               __builtin_add_overflow(constant, product, &constant) || constant == INT64_MIN;
  const auto added = other.terms;  // `other` may be this
  for (const auto& [term, coefficient] : added) {
    overflows |= __builtin_mul_overflow(coefficient, factor, &product);
    add(term, product);
  }
}

namespace {

// a * (b * 4) as a term and its coefficient; false where there is no such literal, or it does not fit.
bool split_product(const Expr& product, Expr* term, int64_t* factor) {
  std::vector<Expr> operands;
  *factor = 1;
  for (const Expr& x : product->operands) {
    const Linear parts = linear_of(x);
    const bool is_scaled = parts.terms.size() == 1 && parts.constant == 0;
    if (is_scaled && __builtin_mul_overflow(*factor, parts.terms[0].second, factor)) return false;
    operands.push_back(is_scaled ? parts.terms[0].first : x);
  }
  if (*factor == 1) return false;
  *term = operation(Op::multiply, std::move(operands));
  return true;
}

}  // namespace

Linear linear_of(const Expr& e) {
  Linear sum;
  const auto& operands = e->operands;
  int64_t value = 0;
  Expr term;
  if (is_integer(e, &value)) {
    sum.constant = value;
    sum.overflows = value == INT64_MIN;
  } else if (e->op == Op::add || e->op == Op::subtract) {
    sum = linear_of(operands[0]);
    sum.add(linear_of(operands[1]), e->op == Op::add ? 1 : -1);
  } else if (e->op == Op::negate && e->type == Type::integer) {
    sum.add(linear_of(operands[0]), -1);
  } else if (e->op == Op::multiply && is_integer(operands[1], &value)) {
    sum.add(linear_of(operands[0]), value);
  } else if (e->op == Op::multiply && is_integer(operands[0], &value)) {
    sum.add(linear_of(operands[1]), value);
  } else if (e->op == Op::multiply && e->type == Type::integer && split_product(e, &term, &value)) {
    sum.add(term, value);
  } else {
    sum.add(e, 1);
  }
  if (sum.overflows || (e->may_fail && !keeps_failures(e, expr_of(sum)))) {
    sum = {};
    sum.add(e, 1);
  }
  return sum;
}

Expr expr_of(const Linear& sum) {
  if (sum.terms.empty()) return sum.constant;
  const auto scaled = [](const Expr& term, int64_t coefficient) {
    return coefficient == 1 ? term : term * coefficient;
  };
  Expr result;
  const auto add = [&](const Expr& x) { result = result ? result + x : x; };
  for (const auto& [term, coefficient] : sum.terms)
    if (coefficient > 0) add(scaled(term, coefficient));
  if (sum.constant > 0) add(sum.constant);
  for (const auto& [term, coefficient] : sum.terms) {
    if (coefficient > 0) continue;
    result = result ? result - scaled(term, -coefficient) : term * coefficient;
  }
  return sum.constant < 0 ? result - -sum.constant : result;
}

bool is_linear_in(const Expr& e, const std::string& name, int64_t* coefficient, Expr* rest) {
  Linear sum = linear_of(e);
  *coefficient = 0;
  for (auto it = sum.terms.begin(); it != sum.terms.end(); ++it) {
    if (!is_variable(it->first, name)) continue;
    *coefficient = it->second;
    sum.terms.erase(it);
    break;
  }
  *rest = expr_of(sum);
  return !uses(*rest, name);
}

}  // namespace weft::loop
