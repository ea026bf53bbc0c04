// Arguments of tests/decode/fused/tiled_kernels.h, for host and kernel alike.
#pragma once

#include "tile/abi/matvec.h"

namespace weft::testing {

// A worker's share times rows of x.
struct TiledArgs {
  const unsigned char* tiles;  // of the share
  int tile_bytes;
  tile::MatvecShare share;
  const unsigned short* x;  // [rows, ldx]
  int ldx;
  float* y;  // [bands of the share, rows, 16]
};

// All rows of a band.
struct TiledRowsArgs {
  const unsigned char* tiles;  // of the band
  int cols;
  float* y;  // [16, cols]
};

}  // namespace weft::testing
