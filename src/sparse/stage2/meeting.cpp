#include "sparse/stage2/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace weft::sparse {
namespace {

using loop::Linear;

// Also of a constant alone.
Expr sum_of(const Linear& sum) { return sum.terms.empty() ? Expr(sum.constant) : loop::expr_of(sum); }

// sum = high * factor + low
void divide(const Linear& sum, int64_t factor, Linear& high, Linear& low) {
  for (const auto& [term, coefficient] : sum.terms) {
    if (coefficient % factor == 0)
      high.add(term, coefficient / factor);
    else
      low.add(term, coefficient);
  }
  low.constant = ((sum.constant % factor) + factor) % factor;
  high.constant = (sum.constant - low.constant) / factor;
}

}  // namespace

// What an expression is at a point. Loads of what changes meanwhile are unknown, each of its own.
Expr Meeting::at(const Expr& e, const Substitution& point) {
  const Expr here = loop::substitute(e, point);
  return loop::rewrite(here, [&](const Expr& node) {
    const bool reads = node->op == Op::load || loop::is_search(node->op);
    return reads && written_.contains(node->name) ? loop::variable(fmt::format("?{}", num_unknown_++), node->type)
                                                  : node;
  });
}

// The value of what stands around an access.
Expr Meeting::at(const Stmt& stmt, const Substitution& point) { return at(copies_.original(stmt.value, stmt), point); }

void Meeting::declare(const Stmt& stmt, Substitution& point, const char* suffix) {
  if (stmt.kind == Stmt::Kind::loop) {
    const std::string name = stmt.name + suffix;
    const Expr extent = at(stmt, point);
    facts_.push_loop(name, extent);
    point[stmt.name] = loop::is_literal(extent, 1) ? Expr(0) : loop::variable(name);
  }
  if (stmt.kind == Stmt::Kind::let) point[stmt.name] = at(stmt, point);
  if (stmt.kind == Stmt::Kind::condition) facts_.push_condition(at(stmt, point));
}

// A loop around both; no direction: any.
void Meeting::declare_both(const Stmt& loop, const Direction* direction) {
  const auto second_after_first = [&](Substitution& first, Substitution& second, const char* suffix) {
    const Expr extent = at(loop, second);
    declare(loop, first, suffix);
    const std::string distance = loop.name + "''";
    facts_.push_loop(distance, extent - 1 - first.at(loop.name));
    second[loop.name] = first.at(loop.name) + 1 + loop::variable(distance);
  };
  if (direction == nullptr) {
    declare(loop, first_, "");
    declare(loop, second_, "'");
  } else if (*direction == Direction::same) {
    declare(loop, first_, "");
    second_[loop.name] = first_.at(loop.name);
  } else if (*direction == Direction::before) {
    second_after_first(first_, second_, "");
  } else {
    second_after_first(second_, first_, "'");
  }
}

bool Meeting::take(const MemoryAccess& a, const MemoryAccess& b, size_t num_same, const Directions& directions) {
  constexpr Direction kSame = Direction::same;
  size_t common = 0;
  while (common < a.around.size() && common < b.around.size() && a.around[common] == b.around[common]) ++common;
  // Memory is another one in every iteration of the loops around it.
  const auto is_memory = [&](const Stmt* stmt) { return stmt->kind == Stmt::Kind::allocate && stmt->name == a.buffer; };
  const auto memory = std::find_if(a.around.begin(), a.around.end(), is_memory);
  const bool is_own = memory != a.around.end();
  const auto num_around_memory = static_cast<size_t>(memory - a.around.begin());
  if (is_own && num_around_memory >= common) return false;
  for (size_t i = 0; i < common; ++i) {
    const Stmt& stmt = *a.around[i];
    if (stmt.kind == Stmt::Kind::loop) {
      const auto named = directions.find(stmt.name);
      const Direction* direction = named == directions.end() ? nullptr : &named->second;
      if (i < num_same || (is_own && i < num_around_memory)) {
        if (direction != nullptr && *direction != kSame) return false;
        direction = &kSame;
      }
      declare_both(stmt, direction);
    } else if (stmt.kind != Stmt::Kind::condition || !(at(stmt, first_) == at(stmt, second_))) {
      declare(stmt, first_, "");
      declare(stmt, second_, "'");
    } else {
      declare(stmt, first_, "");
    }
  }
  for (size_t i = common; i < a.around.size(); ++i) declare(*a.around[i], first_, "");
  for (size_t i = common; i < b.around.size(); ++i) declare(*b.around[i], second_, "'");
  for (size_t d = 0; d < a.places.size() && d < b.places.size(); ++d)
    if (a.places[d] && b.places[d]) equations_.emplace_back(at(a.places[d], first_), at(b.places[d], second_));
  return true;
}

void Meeting::assume_less_at_first(const Stmt& first, const Stmt& second) {
  facts_.push_condition(loop::less(first_.at(first.name), second_.at(second.name)));
}

void Meeting::assume_less_at_second(const Stmt& first, const Stmt& second) {
  facts_.push_condition(loop::less(second_.at(second.name), first_.at(first.name)));
}

bool Meeting::is_refuted() {
  constexpr size_t kMaxEquations = 32;
  size_t num_known = 0;
  do {
    num_known = known_.size() + equations_.size();
    for (size_t e = 0; e < equations_.size() && e < kMaxEquations; ++e) {
      const Pair equation = equations_[e];
      if (contradicts(equation)) return true;
      derive(equation);
    }
    derive_quotients();
  } while (num_known < known_.size() + equations_.size() && equations_.size() < kMaxEquations);
  return false;
}

bool Meeting::contradicts(const Pair& equation) const {
  const Linear sum = difference(equation.first, equation.second, 4);
  if (sum.overflows) return false;
  if (sum.terms.empty()) return sum.constant != 0;
  int64_t divisor = 0;
  for (const auto& [term, coefficient] : sum.terms) divisor = std::gcd(divisor, coefficient);
  if (sum.constant % divisor != 0) return true;
  const Expr value = sum_of(sum);
  return facts_.is_nonnegative(value - 1) || facts_.is_nonnegative(Expr(-1) - value);
}

void Meeting::derive(const Pair& equation) {
  const Linear sum = difference(equation.first, equation.second, 4);
  if (sum.overflows) return;
  const auto& terms = sum.terms;
  if (terms.size() == 2 && sum.constant == 0 && terms[0].second == -terms[1].second) {
    if (!is_known(terms[0].first, terms[1].first)) known_.emplace_back(terms[0].first, terms[1].first);
    derive_unique(terms[0].first, terms[1].first);
  }
  derive_parts(equation);
  // What is left of it where known equal terms are gone.
  Linear plain = loop::linear_of(equation.first), left, right;
  plain.add(loop::linear_of(equation.second), -1);
  if (terms.empty() || terms.size() == plain.terms.size()) return;
  for (const auto& [term, coefficient] : terms) (coefficient > 0 ? left : right).add(term, std::abs(coefficient));
  (sum.constant > 0 ? left : right).constant = std::abs(sum.constant);
  assume(sum_of(left), sum_of(right));
}

// Equal sums of multiples and rests below.
void Meeting::derive_parts(const Pair& equation) {
  const Linear a = loop::linear_of(equation.first), b = loop::linear_of(equation.second);
  if (a.overflows || b.overflows) return;
  std::vector<int64_t> factors;
  for (const auto& [term, coefficient] : a.terms)
    if (coefficient > 1 && std::find(factors.begin(), factors.end(), coefficient) == factors.end())
      factors.push_back(coefficient);
  for (const int64_t factor : factors) {
    const auto is_rest = [&](const Linear& low) {
      const Expr rest = sum_of(low);
      return facts_.is_nonnegative(rest) && facts_.holds(loop::less(rest, factor));
    };
    Linear high_a, low_a, high_b, low_b;
    divide(a, factor, high_a, low_a);
    divide(b, factor, high_b, low_b);
    if (!is_rest(low_a) || !is_rest(low_b)) continue;
    assume(sum_of(high_a), sum_of(high_b));
    assume(sum_of(low_a), sum_of(low_b));
  }
  // What is added to a loaded index may be 0 always.
  for (const auto& [term, coefficient] : a.terms)
    for (const auto& [other, other_coefficient] : b.terms) {
      if (coefficient != 1 || other_coefficient != 1 || a.terms.size() < 2 || b.terms.size() < 2) continue;
      if (term->op != Op::load || other->op != Op::load || term->name != other->name) continue;
      const auto is_nothing = [&](Linear rest, const Expr& index) {
        rest.add(index, -1);
        return facts_.is_nonnegative(sum_of(rest)) && facts_.is_nonnegative(Expr(0) - sum_of(rest));
      };
      if (is_nothing(a, term) && is_nothing(b, other)) assume(term, other);
    }
}

// Indices of an axis, below one parent.
void Meeting::derive_unique(const Expr& a, const Expr& b) {
  if (a->op != Op::load || b->op != Op::load || a->name != b->name) return;
  const Auxiliary* array = stage_.find_auxiliary(a->name);
  if (array == nullptr || array->kind != Auxiliary::Kind::indices) return;
  for (size_t i = 0; i + 1 < a->operands.size(); ++i)
    if (!is_equal(a->operands[i], b->operands[i], 3)) return;
  const Axis& axis = stage_.axis(array->axis);
  const auto is_padding = [&](const Expr& index) {
    return !axis.is_variable && !facts_.holds(loop::less(index, axis.length));
  };
  if (!is_padding(a) || !is_padding(b)) assume(a->operands.back(), b->operands.back());
}

void Meeting::derive_quotients() {
  const auto is_of_one = [&](const Expr& quotient, const Expr& rest) {
    return quotient->op == Op::floor_div && rest->op == Op::modulo && quotient->operands == rest->operands;
  };
  const std::vector<Pair> known = known_;
  for (const auto& [a, b] : known)
    for (const auto& [c, d] : known)
      for (const auto& [rest, other_rest] : {Pair(c, d), Pair(d, c)})
        if (is_of_one(a, rest) && is_of_one(b, other_rest) && is_equal(a->operands[1], b->operands[1], 3))
          assume(a->operands[0], b->operands[0]);
}

void Meeting::assume(const Expr& a, const Expr& b) {
  const Pair equation(a, b);
  if (a == b || std::find(equations_.begin(), equations_.end(), equation) != equations_.end()) return;
  equations_.push_back(equation);
}

bool Meeting::is_known(const Expr& a, const Expr& b) const {
  return std::any_of(known_.begin(), known_.end(), [&](const Pair& pair) {
    return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a);
  });
}

bool Meeting::is_equal(const Expr& a, const Expr& b, int depth) const {
  if (a == b || is_known(a, b)) return true;
  if (depth == 0) return false;
  if (a->type != Type::integer) return is_congruent(a, b, depth);
  const Linear sum = difference(a, b, depth);
  return sum.terms.empty() && sum.constant == 0 && !sum.overflows;
}

// The same operation of equal operands.
bool Meeting::is_congruent(const Expr& a, const Expr& b, int depth) const {
  if (depth == 0 || a->operands.empty() || a->operands.size() != b->operands.size()) return false;
  if (a->op != b->op || a->type != b->type || a->name != b->name) return false;
  for (size_t i = 0; i < a->operands.size(); ++i)
    if (!is_equal(a->operands[i], b->operands[i], depth - 1)) return false;
  return true;
}

// a - b, without what is equal in both.
Linear Meeting::difference(const Expr& a, const Expr& b, int depth) const {
  Linear sum = loop::linear_of(a);
  sum.add(loop::linear_of(b), -1);
  for (size_t i = 0; i < sum.terms.size(); ++i)
    for (size_t j = i + 1; j < sum.terms.size(); ++j) {
      const auto [x, factor] = sum.terms[i];
      const auto [y, other_factor] = sum.terms[j];
      if (factor != -other_factor || !(is_known(x, y) || is_congruent(x, y, depth))) continue;
      sum.add(x, -factor);
      sum.add(y, -other_factor);
      i = static_cast<size_t>(-1);
      break;
    }
  return sum;
}

}  // namespace weft::sparse
