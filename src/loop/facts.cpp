#include "loop/facts.h"

#include <algorithm>

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

// The search behind the value of a `let`, which is -1 where its condition fails.
Expr search_of(const Expr& value) {
  const Expr found = value->op == Op::select ? value->operands[1] : value;
  int64_t otherwise = -1;
  const bool is_search = value->op != Op::select || (is_integer(value->operands[2], &otherwise) && otherwise == -1);
  return is_search && found->op == Op::find ? found : Expr{};
}

const Expr* value_in(const std::vector<std::pair<std::string, Expr>>& bindings, const std::string& variable) {
  const auto it = std::find_if(bindings.rbegin(), bindings.rend(), [&](const auto& b) { return b.first == variable; });
  return it == bindings.rend() ? nullptr : &it->second;
}

// -k d (x // d) is at least -k x.
bool bound_quotient(Linear& sum, const Expr& term, int64_t coefficient) {
  int64_t divisor = 0;
  if (term->op != Op::floor_div || !is_integer(term->operands[1], &divisor) || divisor <= 0) return false;
  if (coefficient % divisor != 0) return false;
  const Expr x = term->operands[0];
  sum.add(Expr(term), -coefficient);
  sum.add(linear_of(x), coefficient / divisor);
  return true;
}

// Whether an extent of 1 or more is a product of the factor and of what is not negative: then the factor is 1 or more.
bool has_factor(const Expr& extent, const Expr& factor, const Facts& facts) {
  if (extent == factor) return true;
  if (extent->op != Op::multiply || extent->type != Type::integer) return false;
  const auto& x = extent->operands;
  return (has_factor(x[0], factor, facts) && facts.is_nonnegative(x[1])) ||
         (has_factor(x[1], factor, facts) && facts.is_nonnegative(x[0]));
}

// What v // d is at most where v is of a loop of a literal number of iterations.
Expr most_of_quotient(const std::vector<std::pair<std::string, Expr>>& loops, const Expr& e) {
  int64_t divisor = 0, count = 0;
  if (e->op != Op::floor_div || e->operands[0]->op != Op::variable || !is_integer(e->operands[1], &divisor)) return {};
  const Expr* extent = value_in(loops, e->operands[0]->name);
  if (extent == nullptr || !is_integer(*extent, &count) || count <= 0 || divisor <= 0) return {};
  return (count - 1) / divisor;
}

}  // namespace

void Facts::push_condition(const Expr& condition, const Body& changed) {
  std::vector<Expr> slacks = slacks_of(condition);
  std::erase_if(slacks, [&](const Expr& slack) {
    bool changes = false;
    visit(slack,
          [&](const Expr& e) { changes |= (e->op == Op::load || is_search(e->op)) && stores_to(changed, e->name); });
    return changes;
  });
  conditions_.push_back(std::move(slacks));
}

// What is at least 0 where the condition holds.
std::vector<Expr> Facts::slacks_of(const Expr& condition) const {
  std::vector<Expr> slacks;
  const auto add = [&](const Expr& other) {
    for (Expr& slack : slacks_of(other)) slacks.push_back(std::move(slack));
  };
  if (condition->op == Op::logical_and) {
    add(condition->operands[0]);
    add(condition->operands[1]);
  } else if (const Expr slack = slack_of(condition)) {
    slacks.push_back(slack);
    // A position that is there was searched, so the condition of its search holds.
    const Expr* value = condition->op == Op::greater_equal && is_integer(condition->operands[1]) &&
                                condition->operands[0]->op == Op::variable
                            ? let_of(condition->operands[0]->name)
                            : nullptr;
    if (value != nullptr && (*value)->op == Op::select && search_of(*value) && is_nonnegative(condition->operands[1]))
      add((*value)->operands[0]);
  }
  return slacks;
}

const Expr* Facts::let_of(const std::string& variable) const { return value_in(lets_, variable); }

// The buffer that an element is loaded from, where it is known what those lie between.
const Buffer* Facts::bounded_buffer(const Expr& e) const {
  if (e->op != Op::load) return nullptr;
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const Buffer& buffer) { return buffer.name == e->name && buffer.least; });
  return found == buffers_.end() ? nullptr : &*found;
}

// Puts the term's least or greatest value in its place, whichever makes the sum least. False where none is known.
bool Facts::replace_by_bound(Linear& sum, const Expr& term, int64_t coefficient) const {
  Expr least, most;
  if (coefficient < 0)
    if (Linear less_sum = sum;
        bound_quotient(less_sum, term, coefficient) || bound_product(less_sum, term, coefficient)) {
      sum = std::move(less_sum);
      return !sum.overflows;
    }
  if (term->op == Op::variable) {
    const Expr* extent = value_in(loops_, term->name);
    if (extent != nullptr || scalars_.contains(term->name)) least = 0;
    if (extent != nullptr) most = *extent - 1;
    if (const Expr* value = let_of(term->name)) {
      // A condition may say that the position of a search is one.
      const bool is_there = std::any_of(conditions_.begin(), conditions_.end(), [&](const std::vector<Expr>& slacks) {
        return std::find(slacks.begin(), slacks.end(), term) != slacks.end();
      });
      if (const Expr search = search_of(*value))
        least = is_there ? 0 : -1, most = *(search->operands.end() - 2) - 1;
      else if (const Buffer* buffer = bounded_buffer(*value))
        least = buffer->least, most = buffer->most;
    }
  } else if (const Buffer* buffer = bounded_buffer(term)) {
    least = buffer->least, most = buffer->most;
  } else if (term->op == Op::modulo) {
    if (is_nonnegative(term->operands[1])) least = 0;
    if (is_positive(term->operands[1])) most = term->operands[1] - 1;
  } else if (term->op == Op::multiply || term->op == Op::floor_div) {
    if (is_nonnegative(term->operands[0]) && is_nonnegative(term->operands[1])) least = 0;
    most = most_of_quotient(loops_, term);
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

// What a value is at most: the extent of its loop, what its buffer holds, what a condition says.
Expr Facts::most_of(const Expr& e) const {
  if (e->op == Op::variable) {
    if (const Expr* extent = value_in(loops_, e->name)) return *extent - 1;
    if (const Expr* value = let_of(e->name))
      if (const Buffer* buffer = bounded_buffer(*value)) return buffer->most;
  }
  for (const auto& slacks : conditions_)
    for (const Expr& slack : slacks) {
      const Linear own = linear_of(e);
      Linear rest = linear_of(slack);
      rest.add(own);
      const auto is_left = [&](const auto& part) {
        return std::any_of(rest.terms.begin(), rest.terms.end(), [&](const auto& t) { return t.first == part.first; });
      };
      if (!own.terms.empty() && !rest.overflows && std::none_of(own.terms.begin(), own.terms.end(), is_left))
        return expr_of(rest);
    }
  if (const Buffer* buffer = bounded_buffer(e)) return buffer->most;
  if (e->op == Op::modulo && is_positive(e->operands[1])) return e->operands[1] - 1;
  // v // d, v being below q * d.
  if (e->op == Op::floor_div && e->operands[0]->op == Op::variable && is_nonnegative(e->operands[1]))
    if (const Expr* extent = value_in(loops_, e->operands[0]->name); extent != nullptr && (*extent)->op == Op::multiply)
      for (size_t i = 0; i < 2; ++i)
        if ((*extent)->operands[i] == e->operands[1]) return (*extent)->operands[1 - i] - 1;
  return {};
}

// -a b is at least -most(a) b, where b is not negative.
bool Facts::bound_product(Linear& sum, const Expr& term, int64_t coefficient) const {
  if (term->op != Op::multiply) return false;
  const Expr product = term;
  for (size_t i = 0; i < 2; ++i) {
    const Expr &a = product->operands[i], &b = product->operands[1 - i];
    const Expr most = most_of(a);
    if (!most || !is_nonnegative(b)) continue;
    const Linear bound = linear_of(most);
    sum.add(product, -coefficient);
    const auto add = [&](const Expr& part, int64_t factor) {
      int64_t times = 0;
      sum.overflows |= __builtin_mul_overflow(coefficient, factor, &times);
      sum.add(linear_of(part), times);
    };
    for (const auto& [part, factor] : bound.terms) add(i == 0 ? part * b : b * part, factor);
    add(b, bound.constant);
    return true;
  }
  return false;
}

bool Facts::is_nonnegative(Linear sum, int depth) const {
  // Proofs need few steps; where there is none, the ways to look for one multiply with every nesting.
  constexpr int kMaxNesting = 6, kMaxSteps = 64, kMaxStepsOfAll = 2000;
  if (nesting_ == kMaxNesting) return false;
  if (nesting_++ == 0) steps_ = 0;
  bool proven = false, open = true;
  for (int steps = 0; steps < kMaxSteps && open && !proven && !sum.overflows; ++steps) {
    if (++steps_ > kMaxStepsOfAll) break;
    open = !sum.terms.empty();
    proven = open ? depth > 0 && is_nonnegative_by_conditions(sum, depth) : sum.constant >= 0;
    if (open && !proven) open = bound_some(sum);
  }
  --nesting_;
  return proven;
}

// Puts its bound in the place of a term: of what is subtracted first, as it may cancel what is added; positions that
// were searched and inner loops before outer ones, which their extents may speak of; variables last.
bool Facts::bound_some(Linear& sum) const {
  std::vector<Expr> order;
  for (const bool negative : {true, false}) {
    const auto add = [&](const auto& wanted) {
      for (const auto& [term, coefficient] : sum.terms)
        if ((coefficient < 0) == negative && wanted(term)) order.push_back(term);
    };
    for (const auto* bindings : {&lets_, &loops_})
      for (auto binding = bindings->rbegin(); binding != bindings->rend(); ++binding)
        add([&](const Expr& term) { return is_variable(term, binding->first); });
    add([](const Expr& term) { return term->op == Op::floor_div; });  // what it is of may cancel the others
    add([](const Expr& term) { return term->op != Op::variable; });
    add([](const Expr& term) { return term->op == Op::variable; });
  }
  for (const Expr& term : order) {
    const auto at = std::find_if(sum.terms.begin(), sum.terms.end(), [&](const auto& t) { return t.first == term; });
    if (replace_by_bound(sum, term, at->second)) return true;
  }
  return false;
}

// Whether what is left behind a multiple of what a condition says to be at least 0 is at least 0.
bool Facts::is_nonnegative_by_conditions(const Linear& sum, int depth) const {
  for (const auto& slacks : conditions_)
    for (const Expr& slack : slacks) {
      const Linear known = linear_of(slack);
      for (const auto& one : known.terms) {
        const auto at =
            std::find_if(sum.terms.begin(), sum.terms.end(), [&](const auto& t) { return t.first == one.first; });
        if (at == sum.terms.end() || at->second % one.second != 0 || at->second / one.second <= 0) continue;
        Linear rest = sum;
        rest.add(known, -(at->second / one.second));
        if (is_nonnegative(rest, depth - 1)) return true;
        break;  // other terms give the same multiple, or none
      }
    }
  return false;
}

bool Facts::is_nonnegative(const Expr& e) const { return is_nonnegative(linear_of(e), 2); }

bool Facts::is_positive(const Expr& e) const {
  int64_t value = 0;
  if (is_integer(e, &value)) return value > 0;
  // A loop that runs has an iteration: its extent is at least 1.
  return is_nonnegative(e - 1) ||
         std::any_of(loops_.begin(), loops_.end(), [&](const auto& loop) { return has_factor(loop.second, e, *this); });
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

bool Facts::is_never_reached() const {
  const auto is_empty = [&](const auto& loop) { return is_nonnegative(Expr(0) - loop.second); };
  if (std::any_of(loops_.begin(), loops_.end(), is_empty)) return true;
  for (const auto& slacks : conditions_)
    for (const Expr& slack : slacks) {
      const Expr excess = Expr(-1) - slack;
      const auto exceeds = [&](const auto& loop) { return is_nonnegative(excess - (loop.second - 1)); };
      if (is_nonnegative(excess) || std::any_of(loops_.begin(), loops_.end(), exceeds)) return true;
    }
  return false;
}

}  // namespace weft::loop
