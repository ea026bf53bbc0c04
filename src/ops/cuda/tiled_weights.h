// Weights as products of warps read them: a matrix in its line of tiles (ops/tiled_matrix.h), whose bytes lie as
// tile/cuda/matvec.h and quantised_tiles.h multiply them.
//
//   check_tiles(tiles, "qkv");                                                       // before there is memory for it
//   write_tiles(tiles, "qkv", sources, cuda::runtime(), device, to, team, stream);   // tiles.bytes from `to` on
//
// BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; a tile is one piece of its type or several that follow each other.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/cuda/runtime.h"
#include "ops/tiled_matrix.h"
#include "ops/weight_source.h"

namespace weft::ops {

// 16 rows by so many columns, the least that a kernel multiplies at once. {0, 0}: kernels have none of that type.
struct TilePiece {
  int64_t cols = 0, bytes = 0;
};
TilePiece tile_piece(WeightType type);
std::string_view tile_struct(WeightType type);  // what kernel code calls it: "Q4Tile"

// Throws Error(unsupported) where kernels do not have a type of the matrix, or tiles are no whole pieces of it.
void check_tiles(const TiledMatrix& tiles, std::string_view name);

// Reads the sources, the matrix's rows in order, and packs them with the team, some MB at a time. `to`: memory of the
// device, 16-byte aligned. Gives in words which scale or least value is the first that is not finite, "" where all are.
// Throws what check_tiles and reading throw.
std::string write_tiles(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources,
                        const cuda::Runtime& runtime, Device device, void* to, WorkerTeam& team, Stream stream);
// All bytes in the host's memory.
std::vector<char> pack_tiles(const TiledMatrix& tiles, std::string_view name, std::span<const WeightSource> sources,
                             WorkerTeam& team);

}  // namespace weft::ops
