#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// Whether nothing stands between the loops but conditions, each alone in what is around it.
bool stands_within(const LoopInNest& a, const LoopInNest& b) {
  if (a.block != b.block || b.place <= a.place) return false;
  for (size_t l = a.place; l < b.place; ++l) {
    const Stmt& stmt = a.nest.path[l].stmt();
    if (stmt.body.size() != 1 || (l > a.place && stmt.kind != Stmt::Kind::condition)) return false;
  }
  return true;
}

}  // namespace

void fuse(Stage2& stage, const std::string& outer, const std::string& inner, const std::string& fused) {
  LoopInNest a = find_loop(stage, outer);
  const LoopInNest b = find_loop(stage, inner);
  const std::string both = outer + ", " + inner;
  if (!stands_within(a, b))
    refuse("fuse", both, fmt::format("'{}' does not stand directly and alone within '{}'", b.variable, a.variable));
  if (loop::uses(b.loop().value, a.variable))
    refuse("fuse", both,
           fmt::format("the extent {} of '{}' depends on '{}'; fuse the axes with sparse_fuse in stage I",
                       loop::to_words(b.loop().value), b.variable, a.variable));
  if (b.place > a.place + 1 && loads_anything(b.loop().value))
    refuse(
        "fuse", both,
        fmt::format("the extent {} of '{}' is loaded within a condition", loop::to_words(b.loop().value), b.variable));
  if (a.loop().reduction != b.loop().reduction)
    refuse("fuse", both, "one of them is spatial and the other a reduction");
  // Init runs before reductions: before both of the loops, or within both.
  visit(Body{a.loop()}, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::block || stmt.init.empty()) return;
    const Names reductions = find_block(stage, stmt.name).reductions();
    if (reductions.contains(a.variable) != reductions.contains(b.variable))
      refuse(
          "fuse", both,
          fmt::format("init of block '{}' runs before one of them and within the other; use decompose_reduction first",
                      stmt.name));
  });
  if (a.loop().loop != loop::LoopKind::serial || b.loop().loop != loop::LoopKind::serial)
    refuse("fuse", both, "one of them is no serial loop any more; fuse before");
  if (fused != a.variable && fused != b.variable) check_new_name(stage, a.nest, fused);

  Stmt& loop = a.loop();
  const Expr extent = b.loop().value;
  Body body = std::move(b.loop().body);
  // Conditions between them are asked in each iteration of both.
  for (size_t l = b.place - 1; l > a.place; --l)
    body = {loop::make_condition(a.nest.path[l].stmt().value, std::move(body))};
  // Through names that nothing has: `fused` may be one of the two.
  const Expr index = loop::variable(fused);
  substitute(body, {{a.variable, loop::floor_div(index, extent)}, {b.variable, loop::modulo(index, extent)}});
  loop.name = fused;
  loop.value = loop.value * extent;
  loop.body = std::move(body);
}

}  // namespace weft::sparse
