// The kernels of fused decoding, as the host's compiler takes them.
#include "decode/fused/cuda/kernels/deep_linear.h"
#include "tests/decode/fused/instances.h"
#include "tests/decode/fused/tiled_kernels.h"

WEFT_DEEP_LINEARS(WEFT_DEEP_LINEAR)
WEFT_TILED(WEFT_TILED_KERNEL)
WEFT_TILED_ROWS_KERNEL(Bf16Tile)
WEFT_TILED_ROWS_KERNEL(Q8Tile)
WEFT_TILED_ROWS_KERNEL(Q4Tile)
WEFT_TILED_ROWS_KERNEL(Q4WithLeastTile)
WEFT_TILED_ROWS_KERNEL(Q4Group128Tile)
