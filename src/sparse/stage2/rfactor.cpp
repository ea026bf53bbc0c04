#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/outside.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// What changes within the reductions, the first of which is path[first]: variables, and memory that is set there.
Names changing_within(const Nest& nest, size_t first) {
  Names changing;
  visit(Body{nest.path[first].stmt()}, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::block && !stmt.name.empty()) changing.insert(stmt.name);
  });
  return changing;
}

// a * x, where a is the same in every iteration of the reductions: their sums are multiplied by it once.
void take_factor(const Names& changing, Expr& term, Expr& factor) {
  if (term->op != Op::multiply) return;
  for (size_t i = 0; i < 2; ++i) {
    if (term->operands[i]->may_fail) continue;  // it is not evaluated where the reductions have no iteration
    if (have_common(names_in(term->operands[i]), changing)) continue;
    factor = term->operands[i];
    term = term->operands[1 - i];
    return;
  }
}

Expr scaled(const Expr& factor, const Expr& x) { return factor ? factor * x : x; }

// Init, which runs behind the partial sums then, sets nothing that the reductions access, and they nothing it reads.
void check_init_behind(const std::string& name, const Nest& nest, size_t first, const std::string& target) {
  const Body& init = nest.block().init;
  Body reductions{nest.path[first].stmt()};
  visit(reductions, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block && stmt.name == nest.block().name) stmt.init.clear();
  });
  const auto check = [&](const Body& writing, const Body& other) {
    visit(writing, [&](const Stmt& stmt) {
      if (stmt.kind != Stmt::Kind::store || stmt.name == target) return;
      if (loop::accesses(other, stmt.name))
        refuse("rfactor", name,
               fmt::format("init of block '{}', which would run behind the partial sums, and they access '{}'; use "
                           "decompose_reduction first",
                           nest.block().name, stmt.name));
    });
  };
  check(init, reductions);
  check(reductions, init);
}

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
           fmt::format("block '{}' is no sum of the form {} = {} + x", block.name, loop::to_words(target),
                       loop::to_words(target)));

  for (const Expr& index : store.indices) {
    const Expr at = found.nest.without_lets(index);
    for (size_t i = 0; i + 1 < found.nest.path.size(); ++i)
      if (const Stmt& level = found.nest.path[i].stmt();
          level.kind == Stmt::Kind::loop && level.reduction && loop::uses(at, level.name))
        refuse("rfactor", name,
               fmt::format("'{}' is written at {}, another element in each iteration of the reduction '{}'", store.name,
                           loop::to_words(index), level.name));
    for (const Stmt& stmt : block.body)
      if (stmt.kind == Stmt::Kind::let && loop::uses(index, stmt.name))
        refuse("rfactor", name,
               fmt::format("'{}' is written at '{}', which is set within the block", store.name, stmt.name));
  }
  // The loop is spatial then, and init of others runs before their reductions.
  visit(Body{loop}, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block && stmt.name != found.block && !stmt.init.empty() &&
        find_block(stage, stmt.name).reductions().contains(found.variable))
      refuse(
          "rfactor", name,
          fmt::format("it is a reduction of block '{}', too, whose init runs before it; use decompose_reduction first",
                      stmt.name));
  });
  Body others{found.nest.path[first].stmt()};
  visit(others, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block && stmt.name == found.block) stmt.body.clear(), stmt.init.clear();
  });
  if (loop::accesses(others, store.name))
    refuse("rfactor", name, fmt::format("another block within the reductions accesses '{}', too", store.name));
  check_init_behind(name, found.nest, first, store.name);
  const Names taken = taken_names(stage);
  const std::string partial = loop::fresh_name(store.name + "_partial", taken);
  const std::string lane = loop::fresh_name(found.variable + "_sum", taken);
  const Expr place = loop::variable(found.variable);
  const Expr mine = loop::load(partial, {place}, target->type);

  const Names changing = changing_within(found.nest, first);
  Substitution within;  // what lets within the reductions name
  for (size_t i = first + 1; i < found.nest.path.size(); ++i)
    for (size_t s = 0; s < found.nest.path[i].index; ++s)
      if (const Stmt& let = (*found.nest.path[i].body)[s]; let.kind == Stmt::Kind::let)
        within[let.name] = found.nest.without_lets(loop::variable(let.name));
  // Points that conditions within the reductions leave out have no sum.
  Body kept;
  std::vector<const Stmt*> left_out;
  for (size_t i = first; i + 1 < found.nest.path.size(); ++i) {
    const Stmt& stmt = found.nest.path[i].stmt();
    if (stmt.kind == Stmt::Kind::condition && !have_common(names_in(stmt.value), changing))
      kept.push_back(loop::make_condition(stmt.value, {}));
    else if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::condition)
      left_out.push_back(&stmt);
  }
  // An iteration that adds no term has nothing that is multiplied: the factor may be infinite, or not there.
  Expr factor, term = store.value->operands[1];
  std::vector<const Stmt*> all_but_own = left_out;
  std::erase(all_but_own, &loop);
  const Runs runs = runs_of(found.nest, first, {found.variable}, all_but_own);
  if (runs.exact) take_factor(changing, term, factor);
  if (factor) {
    Around around = found.nest.around(first);
    for (const Stmt& condition : kept) around.push_back(&condition);
    loop::Facts facts = facts_within(stage, around);
    facts.push_loop(found.variable, extent);
    if (const Expr runs_at = unproven(facts, runs.conditions))
      factor = loop::select(loop::substitute(runs_at, {{found.variable, loop::variable(lane)}}), factor,
                            factor->type == Type::real ? loop::real(0) : Expr(0));
  }
  const Expr taken_sum = loop::load(partial, {loop::variable(lane)}, target->type);

  const bool is_integer = target->type == Type::integer;
  const Expr nothing = is_integer ? Expr(0) : loop::real(0);

  // Zero, each iteration to its own; then the sums in order.
  Stmt zero = loop::make_loop(found.variable, extent,
                              {loop::make_block(found.block + "_zero", {loop::make_store(partial, {place}, nothing)})});
  Stmt sum = loop::make_loop(
      lane, extent,
      {loop::make_block(found.block + "_sum",
                        {loop::make_store(store.name, store.indices, target + scaled(factor, taken_sum))},
                        block.init)});
  sum.reduction = true;
  const bool has_init = !block.init.empty();
  store.value = mine + term;
  store.name = partial;
  store.indices = {place};
  loop.reduction = false;
  Body& body = *found.nest.path[first].body;
  const auto at = body.begin() + static_cast<std::ptrdiff_t>(found.nest.path[first].index);
  const DType dtype = loop::computed_in(buffer->dtype);
  Body sums{std::move(sum)};
  substitute(sums, within);
  // Where nothing runs nothing is added. Init that sets the element has shown that it is there.
  Body added{loop::make_store(target->name, target->operands, target)};
  substitute(added, within);
  added = where_they_run(stage, found.nest, first, found.nest.around(first), kept, left_out, std::move(added));
  block.init.clear();
  if (added[0].kind == Stmt::Kind::condition) {
    if (has_init)
      refuse("rfactor", name,
             fmt::format("'{}' may be added to only where {}, and init of block '{}' runs anyway; use "
                         "decompose_reduction first",
                         target->name, loop::to_words(added[0].value), found.block));
    added[0].body = std::move(sums);
    sums = std::move(added);
  }
  for (auto condition = kept.rbegin(); condition != kept.rend(); ++condition)
    sums = {loop::make_condition(condition->value, std::move(sums))};
  check_memory_around(found.nest, first, sums);
  Body before{loop::make_allocate(partial, {Expr(extent)}, dtype, scope), std::move(zero)};
  const auto after = body.insert(at, before.begin(), before.end()) + 3;
  body.insert(after, sums.begin(), sums.end());
}

}  // namespace weft::sparse
