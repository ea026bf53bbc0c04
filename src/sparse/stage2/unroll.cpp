#include "base/check.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void unroll(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("unroll", found);
  const int64_t extent = literal_extent("unroll", found);
  if (extent > 64) refuse("unroll", name, fmt::format("its extent is {}; at most 64 are allowed", extent));
  loop.loop = LoopKind::unroll;
}

}  // namespace weft::sparse
