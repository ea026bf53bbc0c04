#include "loop/threads/sums.h"

#include <limits>
#include <utility>

#include "loop/threads.h"

namespace weft::loop {
namespace {

// 0 of sums, -inf of largest elements, inf of least ones.
Expr neutral_of(Op op) {
  const double infinity = std::numeric_limits<double>::infinity();
  return real(op == Op::add ? 0 : op == Op::maximum ? -infinity : infinity);
}

}  // namespace

ThreadSum thread_sum_of(const Kernel& kernel, Stmt loop, int number) {
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
  bool is_sum = num_stores == 1 && is_combined(*store);
  for (const std::string& name : inside) is_sum = is_sum && !uses(store->indices[0], name);
  if (!is_sum)
    kernel.refuse(loop.scheduled,
                  "reduction '{}' is bound to {}; supported: one sum, x[i] = x[i] + y, or max or min in its place, at "
                  "one place for all its iterations",
                  loop.name, loop.thread);
  ThreadSum sum{.name = fmt::format("weft_sum_{}", number), .begin = {}, .loop = {}, .together = {}, .end = {}};
  const Expr own = load(sum.name, {0}, Type::real);
  const Op combine = store->value->op;
  sum.begin = {make_allocate(sum.name, {1}, kernel.real_type(), Scope::registers),
               make_store(sum.name, {0}, neutral_of(combine))};
  sum.end = make_store(store->name, store->indices, operation(combine, {store->value->operands[0], own}));
  *store = make_store(sum.name, {0}, operation(combine, {own, store->value->operands[1]}));
  loop.reduction = false;
  sum.loop = std::move(loop);
  // Where other loops are bound to threads, whole warps belong to one iteration of theirs.
  sum.together = {.kind = Stmt::Kind::thread_sum,
                  .name = sum.name,
                  .thread = kernel.threads.size() == 1 ? "cta" : "warp",
                  .combine = combine};
  return sum;
}

Stmt memory_of_cta_sums(const Kernel& kernel) {
  return make_allocate("weft_sums", {32}, kernel.real_type(), Scope::shared);  // one for each warp
}

}  // namespace weft::loop
