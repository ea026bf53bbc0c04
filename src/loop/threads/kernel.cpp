#include "loop/threads/kernel.h"

#include <algorithm>

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
    if (is_shared) shared.insert(stmt.name);
    const bool is_output = stmt.kind == Stmt::Kind::store && function.find(stmt.name) != nullptr;
    if (is_shared || is_output) tracked.insert(stmt.name);
  });
}

DType Kernel::real_type() const {
  const auto is_double = [](const Buffer& b) { return b.dtype == DType::fp64; };
  return std::any_of(function.buffers.begin(), function.buffers.end(), is_double) ? DType::fp64 : DType::fp32;
}

}  // namespace weft::loop
