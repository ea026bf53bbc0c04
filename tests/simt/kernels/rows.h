// Rows into a swizzled tile and out again, every other one filled with zeros.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/copy.h"
#include "tile/cuda/ptx/barrier.h"

namespace weft {

template <int kColumns>
WEFT_INLINE void copy_through_tile(const RowsArgs& args) {
  const tile::SharedTile<kColumns> tile{ptx::shared_memory()};
  const fp16* const from = static_cast<const fp16*>(args.from);
  const int thread = ptx::thread_index();
  tile::copy_rows<kRowsRows, 64>(tile, thread, from,
                                 [&](int row) { return row % 2 == 0 ? from + row * kColumns : nullptr; });
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::cta_sync();
  for (int i = thread; i < kRowsRows * tile.kChunks; i += 64)
    static_cast<Bytes16*>(args.to)[i] =
        *reinterpret_cast<const Bytes16*>(tile.chunk(i / tile.kChunks, i % tile.kChunks));
}

}  // namespace weft

WEFT_KERNEL(64, 1) void weft_rows(WEFT_PARAM weft::RowsArgs args) {
  switch (args.columns) {
    case 24: weft::copy_through_tile<24>(args); break;
    case 80: weft::copy_through_tile<80>(args); break;
    case 128: weft::copy_through_tile<128>(args); break;
  }
}
