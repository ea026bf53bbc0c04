#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void reorder(Stage2& stage, const std::vector<std::string>& names) {
  const std::string all = joined(names);
  if (names.size() < 2) refuse("reorder", all, "two loops or more are needed");
  std::vector<LoopInNest> loops;
  for (const std::string& name : names) loops.push_back(find_loop(stage, name));
  std::vector<size_t> places;
  for (const LoopInNest& loop : loops) {
    if (loop.block != loops[0].block)
      refuse("reorder", all, fmt::format("'{}' is of another nest than '{}'", loop.name, loops[0].name));
    if (std::count(places.begin(), places.end(), loop.place) > 0)
      refuse("reorder", all, fmt::format("'{}' stands twice", loop.name));
    if (loop.loop().loop == loop::LoopKind::parallel || loop.loop().loop == loop::LoopKind::vectorize)
      refuse("reorder", all,
             fmt::format("'{}' is {} already; reorder before", loop.name, loop::to_string(loop.loop().loop)));
    places.push_back(loop.place);
  }
  const auto [first, last] = std::minmax_element(places.begin(), places.end());
  const Nest nest = loops[0].nest;

  // The statements from the first to the last of them: loops, and lets and conditions between, which go inside.
  std::vector<Stmt> in_order, rest;
  for (size_t place = *first; place <= *last; ++place) {
    const Nest::Level& level = nest.path[place];
    if (place > *first) {
      for (size_t i = 0; i < level.body->size(); ++i) {
        if (i == level.index) continue;
        const Stmt& other = (*level.body)[i];
        if (other.kind != Stmt::Kind::let || i > level.index)
          refuse("reorder", all, fmt::format("other statements stand between the loops of block '{}'", loops[0].block));
        rest.push_back(other);
      }
    }
    if (level.stmt().kind != Stmt::Kind::loop && level.stmt().kind != Stmt::Kind::condition)
      refuse("reorder", all, "a block stands between the loops");
    Stmt shell = level.stmt();
    shell.body.clear();
    (shell.kind == Stmt::Kind::loop ? in_order : rest).push_back(std::move(shell));
  }
  // Named loops take the places of named loops, in the new order.
  std::vector<Stmt> reordered;
  size_t next = 0;
  for (const Stmt& loop : in_order) {
    const bool named = std::any_of(loops.begin(), loops.end(), [&](const auto& l) { return l.variable == loop.name; });
    if (!named) {
      reordered.push_back(loop);
      continue;
    }
    const std::string& variable = loops[next++].variable;
    reordered.push_back(
        *std::find_if(in_order.begin(), in_order.end(), [&](const Stmt& l) { return l.name == variable; }));
  }
  // A loop's extent may use what stands outside of it alone.
  Names inside;
  for (const Stmt& stmt : rest)
    if (stmt.kind == Stmt::Kind::let) inside.insert(stmt.name);
  for (auto loop = reordered.rbegin(); loop != reordered.rend(); ++loop) {
    inside.insert(loop->name);
    for (const std::string& used : loop::variables_of(loop->value))
      if (inside.contains(used))
        refuse("reorder", all,
               fmt::format("the extent {} of '{}' uses '{}', which would stand within it", loop::to_text(loop->value),
                           loop->name, used));
  }

  Body inner = std::move(nest.path[*last].stmt().body);
  for (auto stmt = rest.rbegin(); stmt != rest.rend(); ++stmt) {
    Stmt shell = *stmt;
    if (shell.kind == Stmt::Kind::condition) {
      shell.body = std::move(inner);
      inner.clear();
    }
    inner.insert(inner.begin(), std::move(shell));
  }
  for (auto loop = reordered.rbegin(); loop != reordered.rend(); ++loop) {
    Stmt shell = *loop;
    shell.body = std::move(inner);
    inner.clear();
    inner.push_back(std::move(shell));
  }
  nest.path[*first].stmt() = Stmt(std::move(inner[0]));
}

}  // namespace weft::sparse
