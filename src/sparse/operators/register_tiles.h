// Lines of schedules that keep sums of rows and blocks in registers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sparse/operators/vector_unit.h"
#include "weft/tensor.h"

namespace weft::sparse {

// Emits a register-tile schedule: splits `loop` into tiles and vectors, moves the reductions `within` between them,
// keeps the sums in registers.
struct FeatureTile {
  std::string block = {}, loop = "k";
  int64_t feat = 0;
  std::vector<std::string> within = {};  // reductions, by their variables
  std::string rows = {};                 // a loop of rows that the tile has, too; unrolled
  int64_t num_rows = 1;                  // its extent
  std::string around = {};               // the loop that holds the sums where one tile has all features
  std::string pairs = {};                // a reduction of two, whose products are a dot product of bf16
  std::string widened = {};              // a buffer of the rows' factors, copied to fp32 within the first of two loops
  VectorUnit unit = {};
  int64_t most_vectors = 4;  // of a row
};
std::string tiled(const FeatureTile& tile);
// A tile of a block's rows and features: as many rows as there are sums for, 1 or a divisor of the block, split off the
// loop `ii`.
struct BlockTile {
  std::string name = {};   // of the iteration
  std::string above = {};  // the loop around `ii`
  int64_t block = 0;
  bool is_tall = false;  // factors cost nothing to broadcast: as many rows as registers have room for
  int64_t rows = 0;      // so many instead
  FeatureTile tile = {};
};
std::string block_tiled(BlockTile tile);
// Whether so many features are whole vectors, at least one.
bool has_vectors(int64_t feat, int64_t lanes);
// Whether products of bf16 are taken in pairs; splits the innermost reduction for that.
bool has_pairs(int64_t block, int64_t feat, DType dtype, bool dots, const VectorUnit& unit);
std::string in_pairs(BlockTile& tile);
// Whether factors of bf16 are copied to fp32, vector by vector: the multiply-add that takes one then broadcasts it.
bool has_widened(int64_t block, int64_t feat, DType dtype, bool pairs, const VectorUnit& unit);
// The tile of a product of blocks by rows of features, A's of a block by B's.
std::string block_rows_tiled(BlockTile tile, DType dtype, bool dots);
// Sums of a reduction `k` within a block in one vector; "" where there is none.
std::string partial_sums(const std::string& block, int64_t feat, const VectorUnit& unit);

}  // namespace weft::sparse
