#include "loop/threads/sums.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "loop/threads.h"

namespace weft::loop {
namespace {

// 0 of sums, -inf of largest elements, inf of least ones.
Expr neutral_of(Op op) {
  const double infinity = std::numeric_limits<double>::infinity();
  return real(op == Op::add ? 0 : op == Op::maximum ? -infinity : infinity);
}

// The conditions around the store, outermost first.
bool find_conditions(const Body& body, std::vector<Expr>& conditions) {
  for (const Stmt& stmt : body) {
    if (stmt.kind == Stmt::Kind::store) return true;
    const bool is_condition = stmt.kind == Stmt::Kind::condition;
    if (is_condition) conditions.push_back(stmt.value);
    if (find_conditions(stmt.body, conditions)) return true;
    if (is_condition) conditions.pop_back();
  }
  return false;
}

// Whether it may be evaluated anywhere its variables have values.
bool is_plain(const Expr& e) {
  bool plain = true;
  visit(e, [&](const Expr& node) {
    int64_t divisor = 0;
    const bool divides = node->op == Op::floor_div || node->op == Op::modulo;
    plain = plain && node->op != Op::load && !is_search(node->op) &&
            (!divides || (is_integer(node->operands[1], &divisor) && divisor > 0));
  });
  return plain;
}

// Whether all its variables are of these, but for those that say which elements are loaded.
bool is_of(const Expr& e, const Names& names) {
  if (e->op == Op::load || is_search(e->op)) return true;
  if (e->op == Op::variable) return names.contains(e->name);
  return std::all_of(e->operands.begin(), e->operands.end(), [&](const Expr& x) { return is_of(x, names); });
}

// Puts these in the place of the only store.
void replace_store(Body& body, const Body& by) {
  for (size_t i = 0; i < body.size(); ++i) {
    replace_store(body[i].body, by);
    if (body[i].kind != Stmt::Kind::store) continue;
    const auto at = body.erase(body.begin() + static_cast<std::ptrdiff_t>(i));
    body.insert(at, by.begin(), by.end());
    return;
  }
}

// Around the target's access behind the loop; `any`: whether one of the threads came to the store.
struct Guard {
  Expr condition = {};
  bool any = false;
};

// `inside`: loops over which is added up, and what else has a name within.
Guard guard_of(const Kernel& kernel, Surroundings& around, const Stmt& loop, const Stmt& store, const Names& inside) {
  Names loops(kernel.function.scalars.begin(), kernel.function.scalars.end());
  visit(Body{loop}, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::loop) loops.insert(stmt.name);
  });
  std::vector<Expr> conditions;
  find_conditions(loop.body, conditions);
  Guard guard;
  for (const Expr& condition : conditions) {
    const Names used = variables_of(condition);
    const bool is_same_in_all =
        std::none_of(used.begin(), used.end(), [&](const std::string& name) { return inside.contains(name); });
    if (is_same_in_all && is_plain(condition))
      guard.condition = guard.condition ? operation(Op::logical_and, {guard.condition, condition}) : condition;
    else if (!is_of(condition, loops))  // it may say which of the iterations around adds to the target at all
      guard.any = true;
  }
  // What loops and conditions within may keep inside of its buffer is accessed where they do.
  if (guard.condition) around.push_condition(guard.condition);
  guard.any |= !around.is_inside(store.name, store.indices[0]);
  if (guard.condition) around.pop_condition();
  return guard;
}

// Spatial loops of literal extents around the store that say which element it adds to, outermost first: each of their
// iterations has a sum of its own.
class Elements {
 public:
  Elements(const Body& body, const Stmt& store) {
    visit(body, [&](const Stmt& stmt) {
      int64_t extent = 0;
      const bool is_spatial = stmt.kind == Stmt::Kind::loop && !stmt.reduction && !is_bound_loop(stmt);
      if (!is_spatial || !is_integer(stmt.value, &extent) || !uses(store.indices[0], stmt.name)) return;
      loops_.push_back(stmt);
      loops_.back().body.clear();
      place_ = loops_.size() == 1 ? variable(stmt.name) : place_ * extent + variable(stmt.name);
      count_ *= extent;
    });
  }
  int64_t count() const { return count_; }
  Expr place() const { return place_; }  // of an iteration's sum
  bool has(const std::string& name) const {
    return std::any_of(loops_.begin(), loops_.end(), [&](const Stmt& loop) { return loop.name == name; });
  }
  Stmt each(Stmt stmt) const {
    for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
      Stmt around = *loop;
      around.body = {std::move(stmt)};
      stmt = std::move(around);
    }
    return stmt;
  }
  void open(Surroundings& around) const {
    for (const Stmt& loop : loops_) around.open(loop);
  }
  void close(Surroundings& around) const {
    for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) around.close(*loop);
  }

 private:
  std::vector<Stmt> loops_;
  Expr place_ = 0;
  int64_t count_ = 1;
};

}  // namespace

ThreadSum thread_sum_of(const Kernel& kernel, Surroundings& around, Stmt loop, int number) {
  if (loop.thread != "threadIdx.x")
    kernel.refuse(loop.scheduled,
                  "reduction '{}' is bound to {}; supported: threadIdx.x, whose threads are the lanes of a warp",
                  loop.name, loop.thread);
  Stmt* store = nullptr;
  int num_stores = 0;
  Names inside{loop.name};
  visit(loop.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store) store = &stmt, ++num_stores;
    if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let) inside.insert(stmt.name);
  });
  bool is_sum = num_stores == 1 && is_combined(*store) && num_loads(loop.body, store->name) == 1;
  const Elements elements = is_sum ? Elements(loop.body, *store) : Elements({}, {});
  std::erase_if(inside, [&](const std::string& name) { return elements.has(name); });
  for (const std::string& name : inside) is_sum = is_sum && !uses(store->indices[0], name);
  if (!is_sum)
    kernel.refuse(loop.scheduled,
                  "reduction '{}' is bound to {}; supported: one sum, x[i] = x[i] + y, or max or min in its place, at "
                  "one place for all its iterations, or for each of spatial loops within whose extents are literals",
                  loop.name, loop.thread);
  const Stmt target = *store;
  elements.open(around);
  const Guard guard = guard_of(kernel, around, loop, target, inside);
  elements.close(around);
  const Op combine = target.value->op;
  // Where other loops are bound to threads, whole warps belong to one iteration of theirs.
  const std::string together = kernel.threads.size() == 1 ? "cta" : "warp";
  ThreadSum sum;
  sum.is_over_cta = together == "cta";
  const Expr place = elements.place();
  const auto add_memory = [&](const std::string& name, const Expr& value, Op how) {
    sum.begin.push_back(make_allocate(name, {elements.count()}, kernel.real_type(), Scope::registers));
    sum.begin.push_back(elements.each(make_store(name, {place}, value)));
    sum.together.push_back(elements.each(
        {.kind = Stmt::Kind::thread_sum, .name = name, .indices = {place}, .thread = together, .combine = how}));
    return load(name, {place}, Type::real);
  };
  const Expr own = add_memory(fmt::format("weft_sum_{}", number), neutral_of(combine), combine);
  sum.end = make_store(target.name, target.indices, operation(combine, {target.value->operands[0], own}));
  Body adds{make_store(own->name, {place}, operation(combine, {own, target.value->operands[1]}))};
  if (guard.any) {
    const Expr any = add_memory(fmt::format("weft_any_{}", number), real(0), Op::maximum);
    adds.push_back(make_store(any->name, {place}, real(1)));
    sum.end = make_condition(less(real(0), any), {std::move(sum.end)});
  } else if (guard.condition) {
    sum.end = make_condition(guard.condition, {std::move(sum.end)});
  }
  sum.end = elements.each(std::move(sum.end));
  replace_store(loop.body, adds);
  loop.reduction = false;
  sum.loop = std::move(loop);
  return sum;
}

namespace {

class WholeWarps {
 public:
  WholeWarps(const Function& function, const std::array<int, 3>& threads)
      : threads_(threads), same_(function.scalars.begin(), function.scalars.end()) {}

  void look(const Body& body) {
    for (const Stmt& stmt : body) {
      if (stmt.kind == Stmt::Kind::thread_sum) found.insert(stmt.name);
      if (stmt.kind == Stmt::Kind::let && is_same(stmt.value)) same_.insert(stmt.name);
      if (stmt.kind == Stmt::Kind::condition && is_same(stmt.value)) look(stmt.body);
      if (stmt.kind != Stmt::Kind::loop || !keeps_together(stmt)) continue;
      if (!is_thread_loop(stmt)) same_.insert(stmt.name);
      look(stmt.body);
    }
  }

  Names found;

 private:
  bool keeps_together(const Stmt& loop) const {
    if (!is_thread_loop(loop)) return is_same(loop.value);
    int64_t extent = 0;
    return is_integer(loop.value, &extent) && extent % threads_[static_cast<size_t>(loop.thread.back() - 'x')] == 0;
  }
  // Whether all threads of a CTA see one value.
  bool is_same(const Expr& e) const {
    bool same = true;
    visit(e, [&](const Expr& node) {
      same = same && node->op != Op::load && !is_search(node->op) &&
             (node->op != Op::variable || same_.contains(node->name));
    });
    return same;
  }

  const std::array<int, 3> threads_;
  Names same_;
};

}  // namespace

Names sums_of_whole_warps(const Function& function, const Phase& phase) {
  const auto& [x, y, z] = phase.threads;
  if (x == 0 || x * y * z % 32 != 0) return {};
  WholeWarps warps(function, phase.threads);
  warps.look(phase.body);
  return warps.found;
}

Stmt memory_of_cta_sums(const Kernel& kernel) {
  return make_allocate("weft_sums", {32}, kernel.real_type(), Scope::shared);  // one for each warp
}

}  // namespace weft::loop
