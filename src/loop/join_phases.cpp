#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "loop/copies.h"
#include "loop/passes.h"
#include "loop/threads.h"

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

// How the threads of a nest that is bound to blockIdx.x lie: of each axis of threads, the most iterations that a loop
// has there; none where only the kernel knows them.
using ThreadShape = std::map<std::string, std::optional<int64_t>>;

// Whether a launch knows it: no load, no search.
bool is_plain(const Expr& e) {
  bool plain = true;
  visit(e, [&](const Expr& node) { plain &= node->op != Op::load && !is_search(node->op); });
  return plain;
}

// None for other nests, and where a launch does not know how many CTAs there are.
std::optional<ThreadShape> shape_of(const Stmt& nest, const Function& function) {
  const auto is_scalar = [&](const std::string& name) {
    return std::find(function.scalars.begin(), function.scalars.end(), name) != function.scalars.end();
  };
  const Names used = variables_of(nest.value);
  bool is_alike = nest.kind == Stmt::Kind::loop && nest.thread == "blockIdx.x" && is_plain(nest.value) &&
                  std::all_of(used.begin(), used.end(), is_scalar);
  ThreadShape shape;
  visit(nest.body, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::loop || stmt.thread.empty()) return;
    is_alike &= is_thread_axis(stmt.thread);
    int64_t extent = 0;
    auto& most = shape.try_emplace(stmt.thread, 1).first->second;
    if (!is_integer(stmt.value, &extent))
      most.reset();
    else if (most)
      most = std::max(*most, extent);
  });
  return is_alike ? std::optional(std::move(shape)) : std::nullopt;
}

bool are_alike(const ThreadShape& a, const ThreadShape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && (!x.second || !y.second || *x.second == *y.second);
  });
}

}  // namespace

void join_phases(Function& function) {
  const Joining joining(function);
  const Copies copies(function.body, Facts(function));
  std::vector<std::vector<Access>> phase;          // of the loops that nobody waits between
  std::optional<ThreadShape> shape_of_phase = {};  // of bound ones
  for (Stmt& stmt : function.body) {
    const bool is_parallel = stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::parallel;
    std::optional<ThreadShape> shape = shape_of(stmt, function);
    const bool follows =
        shape.has_value() == shape_of_phase.has_value() && (!shape || are_alike(*shape, *shape_of_phase));
    if (!follows) phase.clear();
    shape_of_phase = std::move(shape);
    if (!is_parallel && !shape_of_phase) {
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
