// Weights as kernels of fused decoding read them: a matrix in its line of tiles (decode/fused/tiles.h), whose bytes lie
// as tile/cuda/matvec.h and quantised_tiles.h multiply them.
//
//   check_tiles(tiles, role);                                                       // before there is memory for it
//   write_tiles(tiles, role, sources, cuda::runtime(), device, to, team, stream);   // tiles.bytes from `to` on
//
// BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; a tile is one piece of its type or several that follow each other.
#pragma once

#include <vector>

#include "decode/fused/tiles.h"
#include "jit/cuda/runtime.h"

namespace weft::decode::fused {

// 16 rows by so many columns, the least that a kernel multiplies at once. {0, 0}: kernels have none of that type.
struct TilePiece {
  int64_t cols = 0, bytes = 0;
};
TilePiece tile_piece(WeightType type);
std::string_view tile_struct(WeightType type);  // what kernel code calls it: "Q4Tile"

// Throws Error(unsupported) where kernels do not have a type of the matrix, or tiles are no whole pieces of it.
void check_tiles(const TiledMatrix& tiles, WeightRole role);

// Reads the sources, the matrix's rows in order, and packs them with the team, some MB at a time. `to`: memory of the
// device, 16-byte aligned. Throws what check_tiles and reading throw, and Error(unsupported), naming the row, for a
// scale or a least value that is not finite.
void write_tiles(const TiledMatrix& tiles, WeightRole role, const Sources& sources, const cuda::Runtime& runtime,
                 Device device, void* to, WorkerTeam& team, Stream stream);
// All bytes in the host's memory.
std::vector<char> pack_tiles(const TiledMatrix& tiles, WeightRole role, const Sources& sources, WorkerTeam& team);

}  // namespace weft::decode::fused
