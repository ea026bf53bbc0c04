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
  if (buffer->dtype == DType::bf16) stop(block.name, fmt::format("'{}' rounds what is stored in it", store.name));
  if (loop::loads_from(store.value, store.name)) stop(block.name, fmt::format("it reads '{}' itself", store.name));
  Names variables;
  for (size_t l = 0; l + 1 < nest.path.size(); ++l) {
    const Stmt& loop = nest.path[l].stmt();
    if (loop.kind != Stmt::Kind::loop || (l > 0 && nest.path[l].body->size() != 1))
      stop(block.name, "conditions or other statements stand around it");
    variables.insert(loop.name);
  }
  for (const Expr& index : store.indices) {
    const bool is_place = index->op == Op::variable && variables.erase(index->name) == 1;
    if (!is_place && !loop::is_literal(index, 0))
      stop(block.name, fmt::format("'{}' is written at {}, which is no variable of a loop around it, or stands twice",
                                   store.name, loop::to_text(index)));
  }
  if (!variables.empty()) stop(block.name, fmt::format("'{}' is written again and again", store.name));
  return store;
}

}  // namespace

void compute_inline(Stage2& stage, const std::string& name) {
  const Nest nest = find_block(stage, name);
  const Stmt store = element_of(stage, nest);
  const auto place = stage.body.begin() + static_cast<std::ptrdiff_t>(nest.path[0].index);
  const Body producer{*place};
  Body rest(stage.body.begin(), place), after(place + 1, stage.body.end());
  if (loop::stores_to(rest, store.name) || loop::stores_to(after, store.name))
    stop(name, fmt::format("another block writes '{}', too", store.name));
  if (loop::loads_from(rest, store.name)) stop(name, fmt::format("'{}' is read before", store.name));
  const loop::Regions later = loop::regions_of(after);
  for (const loop::Region& read : loop::regions_of(producer).reads)
    if (later.find_written(read.buffer) != nullptr)
      stop(name, fmt::format("'{}', which it reads, is written after it", read.buffer));

  loop::rewrite_exprs(after, [&](const Expr& e) {
    return loop::rewrite(e, [&](const Expr& node) {
      if (node->op != Op::load || node->name != store.name) return node;
      Substitution at;
      for (size_t d = 0; d < store.indices.size(); ++d)
        if (store.indices[d]->op == Op::variable) at[store.indices[d]->name] = node->operands[d];
      return loop::substitute(store.value, at);
    });
  });
  rest.insert(rest.end(), after.begin(), after.end());
  stage.body = std::move(rest);
  std::erase_if(stage.buffers, [&](const SparseBuffer& b) { return b.name == store.name; });
}

}  // namespace weft::sparse
