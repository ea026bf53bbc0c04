// The family of warps' products (kernels/mma.h), and what others have of it.
#pragma once

#include "attention/cuda/family.h"

namespace weft::attention::cuda {

// Tiles of products: 16 rows, and up to most_rows 64 and 128, where their shared memory and registers are there.
struct MmaTiles {
  int keys_of_small, keys, threads, stages_of_small, stages, most_rows;
};
// Of a spec that the family computes.
MmaTiles mma_tiles(const AttentionSpec& spec, const Architecture& architecture);

inline constexpr int kMmaThreads = 128;
// Shared memory of a CTA with tiles of so many rows, and so many stages of keys.
int products_bytes(const AttentionSpec& spec, int rows, int keys, int stages, bool by_warpgroup = false);

}  // namespace weft::attention::cuda
