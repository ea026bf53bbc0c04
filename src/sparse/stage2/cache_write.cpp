#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void cache_write(Stage2& stage, const std::string& name, loop::Scope scope) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& block = found.nest.block();
  check_written_surely("cache_write", name, block);
  // One element that the block adds to.
  const auto is_store = [](const Stmt& stmt) { return stmt.kind == Stmt::Kind::store; };
  const auto num_stores = std::count_if(block.body.begin(), block.body.end(), is_store);
  if (num_stores != 1)
    refuse("cache_write", name,
           num_stores == 0 ? fmt::format("block '{}' stores nothing itself; name the block within it", block.name)
                           : fmt::format("block '{}' writes more than one element", block.name));
  const Stmt store = *std::find_if(block.body.begin(), block.body.end(), is_store);
  if (store.atomic) refuse("cache_write", name, "the block's sums are atomic; keep them before that");
  const SparseBuffer* buffer = stage.find_buffer(store.name);
  if (buffer == nullptr)
    refuse("cache_write", name, fmt::format("'{}' is kept in memory of its own already", store.name));
  const Names reductions = found.nest.reductions();
  for (size_t i = 0; i <= found.place && !block.init.empty(); ++i)
    if (reductions.contains(found.nest.path[i].stmt().name))
      refuse(
          "cache_write", name,
          fmt::format("loop '{}' is a reduction; what is added up has to be kept around all of it, at a loop outside",
                      found.nest.path[i].stmt().name));

  bool has_reductions = false;  // within, which may run no iteration at all
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i) {
    has_reductions |= reductions.contains(found.nest.path[i].stmt().name);
    for (const Expr& index : store.indices)
      if (const Stmt& loop = found.nest.path[i].stmt();
          reductions.contains(loop.name) && loop::uses(found.nest.without_lets(index), loop.name))
        refuse("cache_write", name,
               fmt::format("'{}' is written at {}, another element in each iteration of the reduction '{}'", store.name,
                           loop::to_words(index), loop.name));
  }
  for (const Stmt& stmt : block.body)
    for (const Expr& index : store.indices)
      if (stmt.kind == Stmt::Kind::let && loop::uses(index, stmt.name))
        refuse("cache_write", name,
               fmt::format("'{}' is written at '{}', which is set within the block", store.name, stmt.name));
  // One place for each iteration of the spatial loops within.
  const Dependences inside(stage, found.nest.around(found.place + 1), {&found.nest.path[found.place + 1].stmt()});
  std::vector<Expr> extents, places;
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i) {
    const Stmt& loop = found.nest.path[i].stmt();
    if (loop.kind != Stmt::Kind::loop || reductions.contains(loop.name)) continue;
    const bool is_bound = loop.loop == loop::LoopKind::bind;
    if (!loop::is_integer(loop.value))
      refuse("cache_write", name,
             fmt::format("the extent {} of '{}'{} is no literal; split it, and keep what the inner loop writes",
                         loop::to_words(loop.value), loop.name,
                         is_bound ? ", which is bound to " + loop.thread + "," : ""));
    if (const std::string twice = inside.written_twice(store.name, loop.name); !twice.empty())
      refuse("cache_write", name,
             fmt::format("{} may be the same element in two iterations of '{}'", twice, loop.name));
    extents.push_back(loop.value);
    places.push_back(loop::variable(loop.name));
  }
  if (extents.empty()) extents.push_back(1), places.push_back(0);

  const std::string local = loop::fresh_name(store.name + "_local", taken_names(stage));
  const Expr target = loop::load(store.name, store.indices, loop::type_of(buffer->dtype));
  const Expr cached = loop::load(local, places, target->type);
  const auto redirect = [&](Body& body) {
    rewrite_exprs(body, [&](const Expr& e) {
      return loop::rewrite(e, [&](const Expr& node) { return node == target ? cached : node; });
    });
    visit(body, [&](Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::store && stmt.name == store.name && stmt.indices == store.indices)
        stmt.name = local, stmt.indices = places;
    });
  };
  redirect(block.body);
  redirect(block.init);
  if (loads_from(block.body, store.name) || accesses(block.init, store.name))
    refuse("cache_write", name,
           fmt::format("block '{}' reads other elements of '{}' than it writes", block.name, store.name));

  // [allocate] [read, unless init sets it from others] the nest [write]
  const Nest::Level& around = found.nest.path[found.place + 1];
  if (loop::accesses({around.stmt()}, store.name))
    refuse("cache_write", name, fmt::format("another block within the loop accesses '{}', too", store.name));
  const auto copy = [&](const char* what, Stmt stmt) {
    return spatial_nest(stage, found.nest, found.place + 1,
                        {loop::make_block(fmt::format("{}_{}", found.block, what), {std::move(stmt)})}, Inner::copy);
  };
  Body before{loop::make_allocate(local, extents, loop::computed_in(buffer->dtype), scope)};
  const bool is_set_first = stores_to(block.init, local) && !loads_from(block.init, local);
  if (!is_set_first && (has_reductions || loads_from(block.body, local) || loads_from(block.init, local))) {
    const Body read = copy("read", loop::make_store(local, places, target));
    before.insert(before.end(), read.begin(), read.end());
  }
  const Body after = copy("write", loop::make_store(store.name, store.indices, cached));
  // The copies ask again where elements lie, and whether there are any.
  for (const Body& copies : {before, after})
    visit_exprs(copies, [&](const Expr& e) {
      loop::visit(e, [&](const Expr& node) {
        const bool reads = node->op == Op::load || loop::is_search(node->op);
        if (reads && node->name != local && loop::stores_to({around.stmt()}, node->name))
          refuse("cache_write", name,
                 fmt::format("where '{}' is written depends on '{}', which is set within the loop", store.name,
                             node->name));
      });
    });
  Body& body = *around.body;
  const auto place = body.begin() + static_cast<std::ptrdiff_t>(around.index);
  body.insert(body.insert(place + 1, after.begin(), after.end()) - 1, before.begin(), before.end());
}

}  // namespace weft::sparse
