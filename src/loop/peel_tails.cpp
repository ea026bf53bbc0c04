#include <algorithm>
#include <map>

#include "loop/facts.h"
#include "loop/passes.h"
#include "loop/threads.h"
#include "loop/threads/kernel.h"

namespace weft::loop {
namespace {

// `outer * factor + inner < bound` where inner runs below the factor.
struct Tail {
  int64_t factor = 0;
  std::string inner = {};
  Expr bound = {};
};

// Finds such a condition within the loop whose bound does not change in it.
bool find_tail(const Body& body, const std::string& outer, Names declared,
               std::vector<std::pair<std::string, Expr>> loops, Tail* tail) {
  for (const Stmt& stmt : body) {
    if (stmt.kind == Stmt::Kind::condition && stmt.value->op == Op::less) {
      Linear rest = linear_of(stmt.value->operands[0]);
      const Expr& bound = stmt.value->operands[1];
      int64_t factor = 0;
      std::string inner;
      for (const auto& [term, coefficient] : rest.terms) {
        if (is_variable(term, outer)) factor = coefficient;
        if (term->op == Op::variable && coefficient == 1 && term->name != outer) inner = term->name;
      }
      bool fits = rest.terms.size() == 2 && rest.constant == 0 && factor > 1 && !inner.empty();
      bool is_bounded = false;
      for (const auto& [name, extent] : loops) is_bounded |= name == inner && is_literal(extent, factor);
      for (const std::string& used : variables_of(bound)) fits = fits && used != outer && !declared.contains(used);
      bool loads = false;
      visit(bound, [&](const Expr& e) { loads |= e->op == Op::load; });
      if (fits && is_bounded && !loads) {
        *tail = {factor, inner, bound};
        return true;
      }
    }
    Names inside = declared;
    auto nested = loops;
    if (stmt.kind == Stmt::Kind::loop) {
      inside.insert(stmt.name);
      nested.emplace_back(stmt.name, stmt.value);
    }
    if (stmt.kind == Stmt::Kind::let) declared.insert(stmt.name);
    if (find_tail(stmt.body, outer, inside, nested, tail)) return true;
  }
  return false;
}

std::vector<std::string> declared_in(const Body& body) {
  std::vector<std::string> names;
  for (const Stmt& stmt : body)
    if (stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate) names.push_back(stmt.name);
  return names;
}

// The same without those conditions where `inner` runs below the factor; `is_below`: it does here. A condition stays
// whose names would meet others in the body around.
Body without_tails(Body body, const std::string& outer, const Tail& tail, bool is_below = false) {
  Body result;
  std::map<std::string, int> times_declared;
  visit(body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate || stmt.kind == Stmt::Kind::loop)
      ++times_declared[stmt.name];
  });
  for (Stmt& stmt : body) {
    const bool is_inner = stmt.kind == Stmt::Kind::loop && stmt.name == tail.inner;
    stmt.body =
        without_tails(std::move(stmt.body), outer, tail, is_inner ? is_literal(stmt.value, tail.factor) : is_below);
  }
  for (Stmt& stmt : body) {
    Linear rest;
    const bool is_less = is_below && stmt.kind == Stmt::Kind::condition && stmt.value->op == Op::less;
    if (is_less) rest = linear_of(stmt.value->operands[0]);
    bool is_tail = is_less && stmt.value->operands[1] == tail.bound && rest.terms.size() == 2 && rest.constant == 0;
    for (const auto& [term, coefficient] : rest.terms)
      is_tail = is_tail && (is_variable(term, outer) ? coefficient == tail.factor
                                                     : is_variable(term, tail.inner) && coefficient == 1);
    for (const std::string& name : declared_in(stmt.body)) is_tail = is_tail && times_declared[name] == 1;
    if (!is_tail) {
      result.push_back(std::move(stmt));
      continue;
    }
    for (Stmt& inner : stmt.body) result.push_back(std::move(inner));
  }
  return result;
}

// Conditions `place < bound` of loops within, at their last iterations: where they hold there, they hold everywhere in
// the body. Of bounds and loops around it; null where a condition is another.
class WholeCtas {
 public:
  explicit WholeCtas(const Function& function) : function_(function) {}

  // What says that all threads of a CTA have all of their iterations; null where no sum over threads asks for that.
  Expr condition_of(const Body& body) {
    look(body, false);
    return all_;
  }

 private:
  void look(const Body& body, bool is_in_sum) {
    for (const Stmt& stmt : body) {
      const bool is_loop = stmt.kind == Stmt::Kind::loop;
      if (is_loop) within_[stmt.name] = stmt.value;
      if (stmt.kind == Stmt::Kind::let) within_[stmt.name] = {};
      if (is_in_sum && stmt.kind == Stmt::Kind::condition) add(stmt.value);
      look(stmt.body, is_in_sum || is_thread_sum(stmt));
      if (is_loop) within_.erase(stmt.name);
    }
  }

  void add(const Expr& condition) {
    if (condition->op != Op::less || !is_of_scalars(condition->operands[1])) return;
    Linear last = linear_of(condition->operands[0]);
    if (last.overflows) return;
    const Linear place = last;
    for (const auto& [term, coefficient] : place.terms) {
      if (term->op != Op::variable) return;
      const auto loop = within_.find(term->name);
      if (loop == within_.end()) continue;
      int64_t extent = 0;
      if (!loop->second || !is_integer(loop->second, &extent) || extent < 1 || coefficient < 0) return;
      last.add(term, -coefficient);
      last.constant += coefficient * (extent - 1);
    }
    const Expr holds = less(expr_of(last), condition->operands[1]);
    if (std::find(found_.begin(), found_.end(), holds) != found_.end()) return;
    found_.push_back(holds);
    all_ = all_ ? operation(Op::logical_and, {all_, holds}) : holds;
  }

  bool is_of_scalars(const Expr& e) const {
    const auto& scalars = function_.scalars;
    bool is_known = true;
    visit(e, [&](const Expr& node) {
      is_known = is_known && node->op != Op::load && !is_search(node->op) &&
                 (node->op != Op::variable || std::find(scalars.begin(), scalars.end(), node->name) != scalars.end());
    });
    return is_known;
  }

  const Function& function_;
  std::map<std::string, Expr> within_;
  std::vector<Expr> found_;
  Expr all_;
};

bool has_condition(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.kind == Stmt::Kind::condition; });
  return found;
}

// Of CTAs whose threads add up sums together, those that are full ask nothing between their loads, and no lane of a
// warp is left out of the sum. Of the others there are few: they take no registers for copies of unrolled loops.
void part_whole_ctas(const Function& function, Stmt& loop) {
  if (loop.body.size() == 1 && is_cta_loop(loop.body[0])) return part_whole_ctas(function, loop.body[0]);
  const Expr is_whole = WholeCtas(function).condition_of(loop.body);
  if (!is_whole) return;
  Body others = loop.body;
  visit(others, [](Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::loop || stmt.loop != LoopKind::unroll || !has_condition(stmt.body)) return;
    stmt.loop = LoopKind::serial;
    stmt.annotations.emplace_back("rolled");
  });
  loop.body = {make_condition(is_whole, std::move(loop.body)),
               make_condition(operation(Op::logical_not, {is_whole}), std::move(others))};
}

// A loop over ceil(bound / factor) becomes one over what is full, and the last, which is not, if there is one.
Body peeled(Body body, Facts& facts) {
  Body result;
  for (Stmt& stmt : body) {
    if (stmt.kind == Stmt::Kind::loop) facts.push_loop(stmt.name, stmt.value);
    stmt.body = peeled(std::move(stmt.body), facts);
    if (stmt.kind == Stmt::Kind::loop) facts.pop_loop();
    Tail tail;
    const bool serial =
        stmt.kind == Stmt::Kind::loop && (stmt.loop == LoopKind::serial || stmt.loop == LoopKind::unroll);
    const bool found = serial && find_tail(stmt.body, stmt.name, {}, {}, &tail);
    if (!found || !(simplify(floor_div(tail.bound + (tail.factor - 1), tail.factor), facts) == stmt.value)) {
      result.push_back(std::move(stmt));
      continue;
    }
    Stmt whole = stmt;
    whole.value = floor_div(tail.bound, tail.factor);
    whole.body = without_tails(std::move(whole.body), stmt.name, tail);
    Body last = std::move(stmt.body);
    substitute(last, {{stmt.name, floor_div(tail.bound, tail.factor)}});
    result.push_back(std::move(whole));
    Expr has_rest = less(0, modulo(tail.bound, tail.factor));  // of a bound below 0, too, which has no iteration
    if (!facts.is_nonnegative(tail.bound)) has_rest = operation(Op::logical_and, {less(0, tail.bound), has_rest});
    result.push_back(make_condition(has_rest, std::move(last)));
  }
  return result;
}

}  // namespace

void peel_tails(Function& function) {
  Facts facts(function);
  function.body = peeled(std::move(function.body), facts);
  for (Stmt& stmt : function.body)
    if (is_cta_loop(stmt)) part_whole_ctas(function, stmt);
}

}  // namespace weft::loop
