// What the grid of formats and primitives accepts.
#include <gtest/gtest.h>

#include "tests/sparse/grid.h"

namespace weft::sparse::test {
namespace {

// Nothing passes because all is refused.
TEST(Schedules, EveryPrimitiveIsAcceptedBySomeFormats) {
  for (const GridPrimitive& primitive : grid_primitives()) {
    int count = 0;
    for (const GridFormat& format : grid_formats())
      count += accepted_in_grid(grid_schedule(format, {&primitive})) ? 1 : 0;
    EXPECT_GE(count, primitive.stage1 || std::string(primitive.name) == "decompose_reduction" ? 1 : 3)
        << primitive.name;
  }
}

}  // namespace
}  // namespace weft::sparse::test
