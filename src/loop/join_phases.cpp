#include <algorithm>
#include <utility>

#include "loop/copies.h"
#include "loop/passes.h"

namespace weft::loop {
namespace {

// Arrays that say where an access lies: index = array[...] * factor + rest, the rest at least 0 and below the factor.
struct Locator {
  std::string array;
  Expr factor;
};

struct Access {
  std::string buffer;
  bool writes = false, atomic = false;
  std::vector<Locator> locators = {};
};

class Collector {
 public:
  Collector(const Function& function, const Copies& copies) : function_(function), copies_(copies), facts_(function) {}
  std::vector<Access> accesses = {};

  void collect(const Stmt& stmt) {
    const auto original = [&](const Expr& e) { return copies_.original(e, stmt); };
    for (const Expr& index : stmt.indices) collect_loads(original(index));
    // What an atomic sum reads of its element it reads and writes at once.
    if (stmt.value) collect_loads(original(stmt.atomic ? stmt.value->operands[1] : stmt.value));
    if (stmt.kind == Stmt::Kind::store) add(stmt.name, original(stmt.indices[0]), true, stmt.atomic);
    if (stmt.kind == Stmt::Kind::loop) facts_.push_loop(stmt.name, original(stmt.value));
    if (stmt.kind == Stmt::Kind::condition) facts_.push_condition(original(stmt.value), stmt.body);
    for (const Stmt& inner : stmt.body) collect(inner);
    if (stmt.kind == Stmt::Kind::loop) facts_.pop_loop();
    if (stmt.kind == Stmt::Kind::condition) facts_.pop_condition();
  }

 private:
  void collect_loads(const Expr& e) {
    visit(e, [&](const Expr& node) {
      if (node->op == Op::load) add(node->name, node->operands[0], false, false);
    });
  }

  void add(const std::string& buffer, const Expr& index, bool writes, bool atomic) {
    if (function_.find(buffer) == nullptr) return;
    Access access{buffer, writes, atomic};
    for (const auto& [term, coefficient] : linear_of(index).terms) {
      const auto& x = term->operands;
      Linear rest = linear_of(index);
      rest.add(term, -coefficient);
      const Expr left = expr_of(rest);
      if (term->op == Op::load) add_locator(access, term->name, coefficient, left);
      if (term->op != Op::multiply || coefficient != 1) continue;
      if (x[0]->op == Op::load) add_locator(access, x[0]->name, x[1], left);
      if (x[1]->op == Op::load) add_locator(access, x[1]->name, x[0], left);
    }
    accesses.push_back(std::move(access));
  }

  void add_locator(Access& access, const std::string& array, const Expr& factor, const Expr& rest) {
    if (facts_.is_nonnegative(rest) && facts_.holds(less(rest, factor))) access.locators.push_back({array, factor});
  }

  const Function& function_;
  const Copies& copies_;
  Facts facts_;
};

class Joining {
 public:
  explicit Joining(const Function& function) : function_(function) {}

  // Whether the two may touch one element, other than by sums that are atomic.
  bool meet(const std::vector<Access>& a, const std::vector<Access>& b) const {
    for (const Access& x : a)
      for (const Access& y : b)
        if (x.buffer == y.buffer && (x.writes || y.writes) && !(x.atomic && y.atomic) && !are_apart(x, y)) return true;
    return false;
  }

 private:
  bool are_apart(const Access& x, const Access& y) const {
    for (const Locator& a : x.locators)
      for (const Locator& b : y.locators)
        for (const auto& list : function_.apart) {
          const auto has = [&](const std::string& name) {
            return std::find(list.begin(), list.end(), name) != list.end();
          };
          if (a.array != b.array && a.factor == b.factor && has(a.array) && has(b.array)) return true;
        }
    return false;
  }
  const Function& function_;
};

}  // namespace

void join_phases(Function& function) {
  const Joining joining(function);
  const Copies copies(function.body, Facts(function));
  std::vector<std::vector<Access>> phase;  // of the loops that nobody waits between
  for (Stmt& stmt : function.body) {
    if (stmt.kind != Stmt::Kind::loop || stmt.loop != LoopKind::parallel) {
      phase.clear();
      continue;
    }
    Collector collector(function, copies);
    collector.collect(stmt);
    stmt.joined = !phase.empty() && std::none_of(phase.begin(), phase.end(), [&](const std::vector<Access>& before) {
      return joining.meet(before, collector.accesses);
    });
    if (!stmt.joined) phase.clear();
    phase.push_back(std::move(collector.accesses));
  }
}

}  // namespace weft::loop
