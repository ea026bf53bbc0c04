#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

bool uses_any(const Expr& e, const Names& names) {
  const Names used = loop::variables_of(e);
  return std::any_of(used.begin(), used.end(), [&](const std::string& v) { return names.contains(v); });
}

// What changes within the reductions.
Names changing_within(const Nest& nest) {
  Names reduced;
  bool inside = false;
  for (const Nest::Level& level : nest.path) {
    inside |= level.stmt().reduction;
    if (inside && !level.stmt().name.empty()) reduced.insert(level.stmt().name);
    for (const Stmt& other : *level.body)
      if (inside && other.kind == Stmt::Kind::let) reduced.insert(other.name);
  }
  return reduced;
}

// a * x, where a is the same in every iteration of the reductions: their sums are multiplied by it once.
void take_factor(const Names& reduced, Expr& term, Expr& factor) {
  if (term->op != Op::multiply) return;
  for (size_t i = 0; i < 2; ++i) {
    if (uses_any(term->operands[i], reduced)) continue;
    factor = term->operands[i];
    term = term->operands[1 - i];
    return;
  }
}

Expr scaled(const Expr& factor, const Expr& x) { return factor ? factor * x : x; }

}  // namespace

void rfactor(Stage2& stage, const std::string& name, loop::Scope scope) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = found.loop();
  if (!loop.reduction) refuse("rfactor", name, "it is no reduction; its iterations have elements of their own already");
  const int64_t extent = literal_extent("rfactor", found);
  if (extent > 4096)
    refuse("rfactor", name, fmt::format("its extent is {}; at most 4096 partial sums are kept", extent));
  const Names reductions = found.nest.reductions();
  if (!reductions.contains(found.variable))
    refuse("rfactor", name, "it is another block's reduction; this one is written at it");
  size_t first = 0;  // the outermost reduction
  while (!reductions.contains(found.nest.path[first].stmt().name)) ++first;
  for (size_t i = first; i < found.nest.path.size(); ++i) {
    const Stmt& stmt = found.nest.path[i].stmt();
    if (stmt.kind == Stmt::Kind::loop && !reductions.contains(stmt.name))
      refuse("rfactor", name,
             fmt::format("the spatial loop '{}' stands within reductions; reorder them inwards", stmt.name));
  }

  // Only a sum can be taken apart: target = target + x.
  Stmt& block = found.nest.block();
  check_written_surely("rfactor", name, block);
  if (block.body.empty() || block.body.back().kind != Stmt::Kind::store)
    refuse("rfactor", name, fmt::format("block '{}' stores nothing", block.name));
  Stmt& store = block.body.back();
  const SparseBuffer* buffer = stage.find_buffer(store.name);
  if (buffer == nullptr) refuse("rfactor", name, fmt::format("'{}' is no buffer of the program", store.name));
  const Expr target = loop::load(store.name, store.indices, loop::type_of(buffer->dtype));
  const bool is_sum = !store.atomic && store.value->op == Op::add && store.value->operands[0] == target &&
                      !loop::loads_from(store.value->operands[1], store.name);
  const bool alone = std::count_if(block.body.begin(), block.body.end(),
                                   [](const Stmt& stmt) { return stmt.kind == Stmt::Kind::store; }) == 1;
  if (!is_sum || !alone)
    refuse("rfactor", name,
           fmt::format("block '{}' is no sum of the form {} = {} + x", block.name, loop::to_text(target),
                       loop::to_text(target)));

  for (const Nest::Level& level : found.nest.path)
    for (const Expr& index : store.indices)
      if (level.stmt().kind == Stmt::Kind::loop && level.stmt().reduction && loop::uses(index, level.stmt().name))
        refuse("rfactor", name,
               fmt::format("'{}' is written at {}, another element in each iteration of the reduction '{}'", store.name,
                           loop::to_text(index), level.stmt().name));
  const Names taken = taken_names(stage);
  const std::string partial = loop::fresh_name(store.name + "_partial", taken);
  const std::string lane = loop::fresh_name(found.variable + "_sum", taken);
  const Expr place = loop::variable(found.variable);
  const Expr mine = loop::load(partial, {place}, target->type);

  Expr factor, term = store.value->operands[1];
  const Names reduced = changing_within(found.nest);
  take_factor(reduced, term, factor);
  const Expr taken_sum = loop::load(partial, {loop::variable(lane)}, target->type);

  // Zero, each iteration to its own; then the sums in order.
  Stmt zero =
      loop::make_loop(found.variable, extent,
                      {loop::make_block(found.block + "_zero", {loop::make_store(partial, {place}, loop::real(0))})});
  Stmt sum = loop::make_loop(
      lane, extent,
      {loop::make_block(found.block + "_sum",
                        {loop::make_store(store.name, store.indices, target + scaled(factor, taken_sum))},
                        block.init)});
  sum.reduction = true;
  block.init.clear();
  store.value = mine + term;
  store.name = partial;
  store.indices = {place};
  loop.reduction = false;
  Body& body = *found.nest.path[first].body;
  const auto at = body.begin() + static_cast<std::ptrdiff_t>(found.nest.path[first].index);
  const DType dtype = buffer->dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  Body sums{std::move(sum)};
  // Points that conditions within the reductions leave out have no sum.
  for (size_t i = first; i < found.nest.path.size(); ++i)
    if (const Stmt& stmt = found.nest.path[i].stmt();
        stmt.kind == Stmt::Kind::condition && !uses_any(stmt.value, reduced))
      sums = {loop::make_condition(stmt.value, std::move(sums))};
  Body before{loop::make_allocate(partial, {Expr(extent)}, dtype, scope), std::move(zero)};
  const auto after = body.insert(at, before.begin(), before.end()) + 3;
  body.insert(after, sums.begin(), sums.end());
}

}  // namespace weft::sparse
