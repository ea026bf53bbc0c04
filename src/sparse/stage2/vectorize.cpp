#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// Whether the loop adds up what a primitive has put into memory of its own: lanes of one vector, in pairs.
bool adds_up_own_memory(const Stage2& stage, const LoopInNest& found) {
  const Body& body = found.nest.block().body;
  if (body.size() != 1 || body[0].kind != Stmt::Kind::store || body[0].value->op != loop::Op::add) return false;
  if (!update_of(body[0])) return false;
  bool adds = false;
  loop::visit(body[0].value->operands[1], [&](const Expr& e) {
    adds |= e->op == loop::Op::load && stage.find_buffer(e->name) == nullptr &&
            stage.find_auxiliary(e->name) == nullptr && loop::uses(e, found.variable);
  });
  const auto& indices = body[0].indices;
  return adds && std::none_of(indices.begin(), indices.end(),
                              [&](const Expr& index) { return loop::uses(index, found.variable); });
}

}  // namespace

void vectorize(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("vectorize", found);
  const int64_t extent = literal_extent("vectorize", found);
  if (extent < 2) return;  // one iteration, or none, is no vector
  if (extent > 64 || (extent & (extent - 1)) != 0)
    refuse("vectorize", name, fmt::format("its extent is {}; 2, 4, 8, 16, 32 and 64 are allowed", extent));
  if (loop.reduction && !adds_up_own_memory(stage, found))
    refuse("vectorize", name,
           "it is a reduction; rfactor makes partial sums of it, one a lane, and loops to vectorise");
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i)
    if (found.nest.path[i].stmt().kind == Stmt::Kind::loop)
      refuse("vectorize", name,
             fmt::format("loop '{}' stands within it; reorder first, a vector is innermost",
                         found.nest.path[i].stmt().name));
  if (!loop.reduction) check_apart("vectorize", stage, found);
  loop.loop = LoopKind::vectorize;
}

}  // namespace weft::sparse
