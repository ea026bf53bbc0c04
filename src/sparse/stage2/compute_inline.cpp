#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

[[noreturn]] void stop(const std::string& block, const std::string& why) { refuse("compute_inline", block, why); }

// The store of the block, which computes each element of a temporary buffer once, at the loops' variables.
const Stmt& element_of(const Stage2& stage, const Nest& nest) {
  const Stmt& block = nest.block();
  if (!block.init.empty() || block.body.size() != 1 || block.body[0].kind != Stmt::Kind::store)
    stop(block.name, "it does not compute an element by one expression");
  const Stmt& store = block.body[0];
  const SparseBuffer* buffer = stage.find_buffer(store.name);
  if (buffer == nullptr || !buffer->temporary)
    stop(block.name, fmt::format("'{}' is no temporary buffer; its values would be missing", store.name));
  if (loop::is_narrow(buffer->dtype)) stop(block.name, fmt::format("'{}' rounds what is stored in it", store.name));
  loop::visit(store.value, [&](const Expr& e) {
    const SparseBuffer* read = e->op == Op::load ? stage.find_buffer(e->name) : nullptr;
    if (read != nullptr && read->dtype == DType::fp64 && buffer->dtype == DType::fp32)
      stop(block.name, fmt::format("'{}' rounds what is stored in it", store.name));
  });
  if (store.value->may_fail)
    stop(block.name, fmt::format("it divides by what may be 0, which '{}' would do only where it is read", store.name));
  if (loop::loads_from(store.value, store.name)) stop(block.name, fmt::format("it reads '{}' itself", store.name));
  Names variables;
  for (size_t l = 0; l + 1 < nest.path.size(); ++l) {
    const Stmt& loop = nest.path[l].stmt();
    if (loop.kind != Stmt::Kind::loop) stop(block.name, "a condition or a block stands around it");
    variables.insert(loop.name);
  }
  for (const Stmt* stmt : nest.around(nest.path.size() - 1))
    if (stmt->kind != Stmt::Kind::loop &&
        (loop::uses(store.value, stmt->name) || loop::loads_from(store.value, stmt->name)))
      stop(block.name, fmt::format("it needs '{}', which is set beside it", stmt->name));
  for (const Expr& index : store.indices) {
    const bool is_place = index->op == Op::variable && variables.erase(index->name) == 1;
    if (!is_place && !loop::is_literal(index, 0))
      stop(block.name, fmt::format("'{}' is written at {}, which is no variable of a loop around it, or stands twice",
                                   store.name, loop::to_words(index)));
  }
  if (!variables.empty()) stop(block.name, fmt::format("'{}' is written again and again", store.name));
  return store;
}

// Removes the block, and what stands around it alone.
void remove(const Nest& nest) {
  for (size_t l = nest.path.size(); l-- > 0;) {
    const Nest::Level& level = nest.path[l];
    level.body->erase(level.body->begin() + static_cast<std::ptrdiff_t>(level.index));
    const bool is_used = std::any_of(level.body->begin(), level.body->end(), [](const Stmt& stmt) {
      return stmt.kind != Stmt::Kind::let && stmt.kind != Stmt::Kind::allocate;
    });
    if (is_used) return;
  }
}

}  // namespace

void compute_inline(Stage2& stage, const std::string& name) {
  const Nest nest = find_block(stage, name);
  const Stmt store = element_of(stage, nest);
  const size_t place = nest.path[0].index;
  for (size_t i = 0; i < place; ++i)
    if (loop::accesses({stage.body[i]}, store.name))
      stop(name, loop::stores_to({stage.body[i]}, store.name)
                     ? fmt::format("another block writes '{}', too", store.name)
                     : fmt::format("'{}' is read before", store.name));
  remove(nest);
  if (loop::stores_to(stage.body, store.name)) stop(name, fmt::format("another block writes '{}', too", store.name));
  // What it reads has to stay until the last of the element's readers, who may stand in its own loops.
  loop::visit(store.value, [&](const Expr& e) {
    if (e->op != Op::load && !loop::is_search(e->op)) return;
    for (size_t i = place; i < stage.body.size(); ++i)
      if (loop::stores_to({stage.body[i]}, e->name))
        stop(name, fmt::format("'{}', which it reads, is written after it", e->name));
  });

  loop::rewrite_exprs(stage.body, [&](const Expr& e) {
    return loop::rewrite(e, [&](const Expr& node) {
      if (node->op != Op::load || node->name != store.name) return node;
      Substitution at;
      for (size_t d = 0; d < store.indices.size(); ++d)
        if (store.indices[d]->op == Op::variable) at[store.indices[d]->name] = node->operands[d];
      return loop::substitute(store.value, at);
    });
  });
  if (loop::loads_from(stage.body, store.name)) stop(name, fmt::format("'{}' is searched", store.name));
  std::erase_if(stage.buffers, [&](const SparseBuffer& b) { return b.name == store.name; });
}

}  // namespace weft::sparse
