// Shared memory of a CTA, as the kernels' structs have it; a kernel's text holds its own against what it is given.
#pragma once

#include <algorithm>

#include "attention/abi.h"
#include "weft/attention.h"

namespace weft::attention::cuda {

inline int scratch_bytes(const AttentionSpec& spec, int threads) {
  return static_cast<int>(sizeof(PlanHeader)) + 16 + 2 * static_cast<int>(sizeof(ItemRecord)) +
         4 * (threads / 32 * std::max(spec.head_dim_qk, spec.head_dim_vo) + threads);
}

inline constexpr int kFusedRowBytes = 52, kHullBytes = 32, kTokenBytes = 48, kAlignment = 128;
// Which tiles are multiplied, and where their tokens lie.
inline constexpr int kWalkBytes = 64;

// Fused rows and keys of a tile of the plain family.
struct PlainTile {
  int rows, keys, threads;
};
// Plain::Shared.
inline int plain_shared_bytes(const AttentionSpec& spec, const PlainTile& tile) {
  const int most = std::max(spec.head_dim_qk, spec.head_dim_vo);
  const int floats =
      tile.rows * spec.head_dim_qk + tile.keys * (most + 4) + tile.keys * (tile.rows + 4) + 4 * tile.rows;
  return scratch_bytes(spec, tile.threads) + 4 * floats + tile.rows * kFusedRowBytes + tile.keys * kTokenBytes +
         kHullBytes + kAlignment;
}

// mma::Shape::Shared, before the tiles and these: four warps share the rows where these are 16, else each has its own.
inline constexpr int kMmaWarps = 4;
inline int bytes_beside_tiles(const AttentionSpec& spec, int rows, int keys, int stages) {
  const int sharing = rows == 16 ? kMmaWarps : 1, source = spec.kv_form == KvForm::block_sparse ? 32 : 16;
  return scratch_bytes(spec, 32 * kMmaWarps) + rows * (kFusedRowBytes + 4 + 8 * sharing) + kHullBytes + kWalkBytes +
         4 * kMmaWarps + (stages + 1) * keys * source;
}
inline int bytes_of_tiles(const AttentionSpec& spec, int rows, int keys, int stages) {
  const int sharing = rows == 16 ? kMmaWarps : 1;
  const int qk = (spec.head_dim_qk + 15) / 16 * 16, vo = (spec.head_dim_vo + 15) / 16 * 16;
  return std::max(2 * rows * qk + stages * 2 * keys * (qk + vo), sharing * rows * (vo + 4) * 4);
}
inline int mma_shared_bytes(const AttentionSpec& spec, int rows, int keys, int stages) {
  return bytes_beside_tiles(spec, rows, keys, stages) + bytes_of_tiles(spec, rows, keys, stages) + 2 * kAlignment;
}
// Of a warpgroup tiles begin, and the whole ends, at a multiple of a kilobyte.
inline int wgmma_shared_bytes(const AttentionSpec& spec, int rows, int keys, int stages) {
  const auto in_kilobytes = [](int bytes) { return (bytes + 1023) / 1024 * 1024; };
  return in_kilobytes(in_kilobytes(bytes_beside_tiles(spec, rows, keys, stages) + kAlignment) +
                      bytes_of_tiles(spec, rows, keys, stages));
}

}  // namespace weft::attention::cuda
