#include "loop/linear.h"

#include <algorithm>

namespace weft::loop {

void Linear::add(const Expr& term, int64_t coefficient) {
  if (coefficient == 0) return;
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
               __builtin_add_overflow(constant, product, &constant);
  const auto added = other.terms;  // `other` may be this
  for (const auto& [term, coefficient] : added) {
    overflows |= __builtin_mul_overflow(coefficient, factor, &product);
    add(term, product);
  }
}

namespace {

// The literal in a product like a * (b * 4).
bool has_factor(const Expr& product, int64_t* factor) {
  for (const Expr& x : product->operands) {
    const Linear parts = linear_of(x);
    if (parts.terms.size() != 1 || parts.constant != 0 || parts.overflows) continue;
    if (__builtin_mul_overflow(*factor, parts.terms[0].second, factor)) return false;
  }
  return *factor != 1;
}

}  // namespace

Linear linear_of(const Expr& e) {
  Linear sum;
  const auto& operands = e->operands;
  int64_t value = 0;
  if (is_integer(e, &value)) {
    sum.constant = value;
  } else if (e->op == Op::add || e->op == Op::subtract) {
    sum = linear_of(operands[0]);
    sum.add(linear_of(operands[1]), e->op == Op::add ? 1 : -1);
  } else if (e->op == Op::negate && e->type == Type::integer) {
    sum.add(linear_of(operands[0]), -1);
  } else if (e->op == Op::multiply && is_integer(operands[1], &value)) {
    sum.add(linear_of(operands[0]), value);
  } else if (e->op == Op::multiply && is_integer(operands[0], &value)) {
    sum.add(linear_of(operands[1]), value);
  } else if (int64_t factor = 1; e->op == Op::multiply && e->type == Type::integer && has_factor(e, &factor)) {
    const auto without = [](const Expr& x) {
      const Linear parts = linear_of(x);
      return parts.terms.size() == 1 && parts.constant == 0 ? parts.terms[0].first : x;
    };
    sum.add(without(operands[0]) * without(operands[1]), factor);
  } else {
    sum.add(e, 1);
  }
  if (sum.overflows || sum.constant == INT64_MIN) {  // its negative does not fit
    sum = {};
    sum.add(e, 1);
  }
  return sum;
}

Expr expr_of(const Linear& sum) {
  Expr result;
  const auto scaled = [](const Expr& term, int64_t coefficient) {
    return coefficient == 1 ? term : term * coefficient;
  };
  for (const auto& [term, coefficient] : sum.terms)
    if (coefficient > 0) result = result ? result + scaled(term, coefficient) : scaled(term, coefficient);
  if (!result && (sum.constant > 0 || sum.terms.empty())) {
    result = sum.constant;
  } else if (sum.constant > 0) {
    result = result + sum.constant;
  }
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
