// What pack.cpp makes and linear.cpp multiplies: one set of panels a source.
#pragma once

#include <vector>

#include "ops/gemm/kernels/abi.h"
#include "ops/gemm/linear.h"

namespace weft::gemm {

const KernelTable& kernel_table(Isa isa);

struct PackedSource {
  Panels panels;
  int64_t first_row = 0;  // of the whole matrix
  int64_t num_panels = 0;
};

struct PackedLinear::Impl {
  const KernelTable* kernels = nullptr;
  TileRows tile_rows{};  // of the kernels, for this machine
  std::vector<PackedSource> sources;
  int64_t rows = 0, cols = 0;
  int64_t num_panels = 0;  // of all sources
  size_t bytes = 0;
  Workspace own;  // empty when the caller gave the memory
};

}  // namespace weft::gemm
