#include "loop/facts.h"

namespace weft::loop {
namespace {

// What is at least 0 where the condition holds; none where it is not of that form.
Expr slack_of(const Expr& condition) {
  const auto& x = condition->operands;
  if (x.size() != 2 || x[0]->type != Type::integer || x[1]->type != Type::integer) return {};
  switch (condition->op) {
    case Op::less: return x[1] - x[0] - 1;
    case Op::less_equal: return x[1] - x[0];
    case Op::greater: return x[0] - x[1] - 1;
    case Op::greater_equal: return x[0] - x[1];
    default: return {};
  }
}

Expr opposite_of(const Expr& condition) {
  switch (condition->op) {
    case Op::less: return operation(Op::greater_equal, condition->operands);
    case Op::less_equal: return operation(Op::greater, condition->operands);
    case Op::greater: return operation(Op::less_equal, condition->operands);
    case Op::greater_equal: return operation(Op::less, condition->operands);
    default: return {};
  }
}

}  // namespace

void Facts::push_condition(const Expr& condition) {
  std::vector<Expr> slacks;
  if (condition->op == Op::logical_and) {
    push_condition(condition->operands[0]);
    slacks = conditions_.back();
    conditions_.pop_back();
    push_condition(condition->operands[1]);
    slacks.insert(slacks.end(), conditions_.back().begin(), conditions_.back().end());
    conditions_.pop_back();
  } else if (const Expr slack = slack_of(condition)) {
    slacks.push_back(slack);
  }
  conditions_.push_back(std::move(slacks));
}

const Expr* Facts::extent_of(const std::string& variable) const {
  for (auto it = loops_.rbegin(); it != loops_.rend(); ++it)
    if (it->first == variable) return &it->second;
  return nullptr;
}

// Puts the term's least or greatest value in its place, whichever makes the sum least. False where none is known.
bool Facts::replace_by_bound(Linear& sum, const Expr& term, int64_t coefficient) const {
  Expr least, most;
  if (term->op == Op::variable) {
    const Expr* extent = extent_of(term->name);
    if (extent != nullptr || scalars_.contains(term->name)) least = 0;
    if (extent != nullptr) most = *extent - 1;
  } else if (term->op == Op::load) {
    for (const Buffer& buffer : buffers_)
      if (buffer.name == term->name && buffer.least) least = buffer.least, most = buffer.most;
  } else if (term->op == Op::modulo) {
    least = 0;
    most = term->operands[1] - 1;
  } else if (term->op == Op::multiply || term->op == Op::floor_div) {
    if (is_nonnegative(term->operands[0]) && is_nonnegative(term->operands[1])) least = 0;
  } else if (term->op == Op::upper_bound) {
    least = 0;
    most = *(term->operands.end() - 2);
  } else if (term->op == Op::find) {
    least = -1;
    most = *(term->operands.end() - 2) - 1;
  } else if (term->op == Op::maximum) {
    least = term->operands[0];
  } else if (term->op == Op::minimum) {
    most = term->operands[0];
  }
  const Expr& bound = coefficient > 0 ? least : most;
  if (!bound) return false;
  const Expr removed = term;
  sum.add(removed, -coefficient);
  sum.add(linear_of(bound), coefficient);
  return !sum.overflows;
}

bool Facts::is_nonnegative(Linear sum) const {
  for (int steps = 0; steps < 64 && !sum.terms.empty(); ++steps) {
    // Inner loops first: their extents may speak of outer ones.
    size_t chosen = sum.terms.size();
    for (auto loop = loops_.rbegin(); loop != loops_.rend() && chosen == sum.terms.size(); ++loop)
      for (size_t i = 0; i < sum.terms.size(); ++i)
        if (is_variable(sum.terms[i].first, loop->first)) chosen = i;
    if (chosen == sum.terms.size()) {
      chosen = 0;
      while (chosen + 1 < sum.terms.size() && sum.terms[chosen].first->op == Op::variable) ++chosen;
    }
    const auto [term, coefficient] = sum.terms[chosen];
    if (!replace_by_bound(sum, term, coefficient)) return false;
  }
  return sum.terms.empty() && sum.constant >= 0;
}

bool Facts::is_nonnegative(const Expr& e) const {
  const Linear sum = linear_of(e);
  if (is_nonnegative(sum)) return true;
  for (const auto& slacks : conditions_)
    for (const Expr& slack : slacks) {
      Linear rest = sum;
      rest.add(linear_of(slack), -1);
      if (is_nonnegative(rest)) return true;
    }
  return false;
}

bool Facts::holds(const Expr& condition) const {
  if (condition->op == Op::logical_and) return holds(condition->operands[0]) && holds(condition->operands[1]);
  if (condition->op == Op::logical_or) return holds(condition->operands[0]) || holds(condition->operands[1]);
  if (condition->op == Op::logical_not) return fails(condition->operands[0]);
  const Expr slack = slack_of(condition);
  return slack && is_nonnegative(slack);
}

bool Facts::fails(const Expr& condition) const {
  if (condition->op == Op::logical_and) return fails(condition->operands[0]) || fails(condition->operands[1]);
  if (condition->op == Op::logical_or) return fails(condition->operands[0]) && fails(condition->operands[1]);
  if (condition->op == Op::logical_not) return holds(condition->operands[0]);
  const Expr opposite = opposite_of(condition);
  return opposite && holds(opposite);
}

}  // namespace weft::loop
