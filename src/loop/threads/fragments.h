// Sums that the warps of a CTA hold together in registers, as tensor cores add to them: memory of scope `fragment`.
//
//   allocate C_local[32, 64]: fp32 in fragment
//   for i in range(32): for k in range(64): C_local[i, k] = 0.0                   // each thread its own elements
//   for i in range(32) [mma]: for k in range(64): for j in range(32) [reduce]: ...   // all warps, tile by tile
//
// A tile is 16 x 8. Lane l holds columns 2 (l % 4) and the next one of rows l / 4 and l / 4 + 8: pairs of elements, one
// of each half of a tile.
#pragma once

#include <optional>

#include "loop/ir.h"

namespace weft::loop {

// Of every CTA that has fragments: its threads lie along x.
inline constexpr int64_t kFragmentThreads = 128;

struct Fragment {
  int64_t rows = 0, columns = 0;
  bool is_turned = false;  // its columns are the rows of tiles: of less than 16 rows
  int64_t warps_m = 1, warps_n = 1, tiles_m = 1, tiles_n = 1;  // warps, and tiles of each, along a tile's rows, columns

  int64_t num_pairs() const { return tiles_m * tiles_n * 2; }  // of a thread
  int64_t num_warps() const { return warps_m * warps_n; }
};
inline constexpr int64_t kTileRows = 16, kTileColumns = 8, kTileDepth = 16;
// None where no tiles make it up, or more than registers hold.
std::optional<Fragment> fragment_of(int64_t rows, int64_t columns);
inline constexpr const char* kFragmentShapes = "multiples of 16 x 8 or of 8 x 16, of up to 128 x 128 elements";

bool is_fragment_memory(const Stmt& stmt);
// The memory of a thread in its place.
Stmt registers_of(const Stmt& memory, const Fragment& fragment);

}  // namespace weft::loop
