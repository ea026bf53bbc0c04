// A grid of formats x primitives of schedules, for SpMM.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/sparse.h"

namespace weft::sparse::test {

inline constexpr int64_t kGridFeat = 6;

// A format of its own: tiles of 2 x 4.
inline constexpr const char* kTiles = R"(format tiles(I, J) with (num_tiles):
  IO = dense_fixed((m + 1) // 2)
  JO = sparse_variable(IO, (n + 3) // 4, num_tiles, indptr=tiles_indptr, indices=tiles_indices)
  II = dense_fixed(2)
  JI = dense_fixed(4)
  buffer(IO, JO, II, JI)
  to IO = I // 2, JO = J // 4, II = I % 2, JI = J % 4
  from I = IO * 2 + II, J = JO * 4 + JI
)";

struct GridFormat {
  const char* format;         // "": as it is
  const char *rows, *places;  // the variables of its loops
};
std::span<const GridFormat> grid_formats();

struct GridPrimitive {
  const char* name;
  const char* lines;  // of stage II; ROWS and PLACES are loops
  bool stage1 = false;
};
std::span<const GridPrimitive> grid_primitives();

std::string grid_schedule(const GridFormat& format, const std::vector<const GridPrimitive*>& primitives);

// SpMM as it is scheduled; without stop_after, to be run.
Operator grid_operator(const std::string& schedule, const std::string& stop_after = "");
// Up to its code; none where the schedule is refused.
std::optional<Operator> accepted_in_grid(const std::string& schedule);

}  // namespace weft::sparse::test
