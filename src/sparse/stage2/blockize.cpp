#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void blockize(Stage2& stage, const std::string& name, const std::string& result) {
  const LoopInNest found = find_loop(stage, name);
  visit(stage.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block && stmt.name == result)
      refuse("blockize", name, fmt::format("there is a block '{}' already", result));
  });
  // Where init runs outside, the new block would be torn apart.
  visit(Body{found.loop()}, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::block || stmt.init.empty()) return;
    Stage2 copy = stage;
    const Nest inner = find_block(copy, stmt.name);
    const Names reductions = inner.reductions();
    for (size_t l = 0; l < found.place; ++l)
      if (reductions.contains(inner.path[l].stmt().name))
        refuse("blockize", name,
               fmt::format("init of block '{}' runs before the reduction '{}' around it; use "
                           "decompose_reduction first",
                           stmt.name, inner.path[l].stmt().name));
  });
  Stmt block = loop::make_block(result, {found.loop()});
  found.loop() = std::move(block);
}

}  // namespace weft::sparse
