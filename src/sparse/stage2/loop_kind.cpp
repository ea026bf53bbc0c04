#include "sparse/stage2/loop_kind.h"

#include "base/check.h"
#include "sparse/stage2/dependence.h"

namespace weft::sparse {

Stmt& serial_loop(const std::string& primitive, const LoopInNest& found) {
  if (found.loop().loop != LoopKind::serial)
    refuse(primitive, found.name, fmt::format("the loop is {} already", loop::to_string(found.loop().loop)));
  return found.loop();
}

bool adds_atomically(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.atomic; });
  return found;
}

void check_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found) {
  const Dependences inside(stage, found.nest.around(found.place), {&found.loop()});
  if (const std::string problem = inside.problem_of_sharing(found.variable); !problem.empty())
    refuse(primitive, found.name, problem);
}

}  // namespace weft::sparse
