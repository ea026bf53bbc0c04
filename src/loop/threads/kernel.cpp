#include "loop/threads/kernel.h"

#include <algorithm>

#include "loop/product.h"
#include "loop/threads.h"

namespace weft::loop {

bool is_bound_loop(const Stmt& stmt) { return stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::bind; }
bool is_thread_loop(const Stmt& stmt) { return is_bound_loop(stmt) && is_thread_axis(stmt.thread); }
bool is_cta_loop(const Stmt& stmt) { return is_bound_loop(stmt) && !is_thread_axis(stmt.thread); }

Kernel::Kernel(const Function& function_, const Body& body) : function(function_), threads{"threadIdx.x"} {
  visit(body, [&](const Stmt& stmt) {
    if (is_thread_loop(stmt)) threads.insert(stmt.thread);
    if (is_cta_loop(stmt)) ctas.emplace(stmt.thread, stmt.scheduled);
    const bool is_shared = stmt.kind == Stmt::Kind::allocate && stmt.scope == Scope::shared;
    if (is_shared) shared.insert(stmt.name), shared_types[stmt.name] = stmt.dtype;
    const bool is_output = stmt.kind == Stmt::Kind::store && function.find(stmt.name) != nullptr;
    if (is_shared || is_output) tracked.insert(stmt.name);
  });
  add_fragments(body);
}

// Flat memory has no rows and columns: its products tell.
void Kernel::add_fragments(const Body& body) {
  std::map<std::string, ProductCall> products;
  visit(body, [&](const Stmt& stmt) {
    if (!is_mma(stmt)) return;
    const ProductNest nest = product_nest(function, stmt);
    if (!nest.is_whole()) refuse(stmt.scheduled, "loop '{}' is a product by mma of less than three loops", stmt.name);
    const ProductCall call = product_call(function, stmt, nest);
    products.emplace(call.c.buffer, call);
  });
  visit(body, [&](const Stmt& stmt) {
    if (!is_fragment_memory(stmt)) return;
    const auto product = products.find(stmt.name);
    if (product == products.end())
      refuse(stmt.scheduled, "'{}' is a fragment that no product by mma adds to; required: tensorize(loop, mma)",
             stmt.name);
    const auto& [m, n] = std::pair(product->second.m, product->second.n);
    const std::optional<Fragment> fragment = fragment_of(m, n);
    if (!fragment || !is_literal(stmt.indices[0], m * n) || stmt.dtype != DType::fp32)
      refuse(stmt.scheduled,
             "'{}' is a fragment of {} x {} elements of {} in {}; required: {} of fp32, one behind the "
             "other",
             stmt.name, m, n, weft::to_string(stmt.dtype), to_words(stmt.indices[0]), kFragmentShapes);
    fragments[stmt.name] = {*fragment, stmt.scheduled};
  });
}

DType Kernel::real_type() const {
  const auto is_double = [](const Buffer& b) { return b.dtype == DType::fp64; };
  return std::any_of(function.buffers.begin(), function.buffers.end(), is_double) ? DType::fp64 : DType::fp32;
}

}  // namespace weft::loop
