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

std::string problem_of_sharing(const Stage2& stage, const LoopInNest& found) {
  const Dependences inside(stage, found.nest.around(found.place), {&found.loop()});
  return inside.problem_of_sharing(found.variable);
}

void check_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found) {
  if (const std::string problem = problem_of_sharing(stage, found); !problem.empty())
    refuse(primitive, found.name, problem);
}

}  // namespace weft::sparse
