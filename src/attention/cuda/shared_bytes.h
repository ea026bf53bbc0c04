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

// mma::Shape::Shared: four warps share the rows where these are 16, else each has its own.
inline int mma_shared_bytes(const AttentionSpec& spec, int rows, int keys, int stages) {
  constexpr int kWarps = 4;
  const int sharing = rows == 16 ? kWarps : 1, source = spec.kv_form == KvForm::block_sparse ? 32 : 16;
  const int qk = (spec.head_dim_qk + 15) / 16 * 16, vo = (spec.head_dim_vo + 15) / 16 * 16;
  const int tiles = 2 * rows * qk + stages * 2 * keys * (qk + vo), out = sharing * rows * (vo + 4) * 4;
  return scratch_bytes(spec, 32 * kWarps) + rows * (kFusedRowBytes + 4 + 8 * sharing) + kHullBytes + kWalkBytes +
         4 * kWarps + (stages + 1) * keys * source + std::max(tiles, out) + 2 * kAlignment;
}

}  // namespace weft::attention::cuda
