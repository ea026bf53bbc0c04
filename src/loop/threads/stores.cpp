#include "loop/threads/stores.h"

#include <algorithm>
#include <utility>

namespace weft::loop {

void check_stored_once(const Kernel& kernel, const Surroundings& around, const Stmt& store) {
  const std::vector<BoundLoop>& bound = around.bound_loops();
  for (const auto& [axis, scheduled] : kernel.ctas)
    if (std::none_of(bound.begin(), bound.end(),
                     [&, &name = axis](const BoundLoop& b) { return b.loop->thread == name; }))
      kernel.refuse(scheduled,
                    "'{}' is stored outside of a loop that is bound to {}; required: every store within all loops of "
                    "its nest that CTAs share",
                    store.name, axis);
  const Names inputs = around.inputs_of(store.indices[0]);
  for (const BoundLoop& b : bound)
    if (!store.atomic && !inputs.contains(b.loop->name))
      kernel.refuse(
          b.loop->scheduled,
          "'{}' is stored at {} in every iteration of loop '{}', which is bound to {}; required: places of their own",
          store.name, to_words(store.indices[0]), b.loop->name, b.loop->thread);
}

Names axes_of_first(const Kernel& kernel, const Stmt& loop) {
  Names axes = kernel.threads, own;
  visit(Body{loop}, [&](const Stmt& stmt) {
    if (is_thread_loop(stmt)) axes.erase(stmt.thread);
    if (stmt.kind == Stmt::Kind::allocate) own.insert(stmt.name);
  });
  visit(loop.body, [&](const Stmt& stmt) {
    const bool is_seen = kernel.tracked.contains(stmt.name) || own.contains(stmt.name);
    if (stmt.kind == Stmt::Kind::store && !is_seen) axes.clear();
  });
  return axes;
}

Stmt for_first(const Names& axes, Body body) {
  Expr condition;
  for (const std::string& axis : axes) {
    const Expr is_zero = operation(Op::equal, {variable(axis), 0});
    condition = condition ? operation(Op::logical_and, {condition, is_zero}) : is_zero;
  }
  return make_condition(condition, std::move(body));
}

}  // namespace weft::loop
