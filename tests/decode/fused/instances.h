// The kernels that tests of fused decoding run in the host machine. WEFT_DEEP_LINEARS(each): each(symbol, edge,
// weights, most rows, warps, pairs, pieces). WEFT_TILED(each): each(weights, most rows).
#pragma once

#define WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, pairs, pieces)                                     \
  each(weft_deep_linear_##name##_##weights##_##rows##_##warps##_##pairs##x##pieces, edge, weights, rows, warps, pairs, \
       pieces)
#define WEFT_DEEP_LINEARS_OF(each, name, edge, weights, rows, warps) \
  WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, 1, 1)  \
  WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, 1, 2)  \
  WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, 2, 1)  \
  WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, 2, 2)  \
  WEFT_DEEP_LINEAR_OF(each, name, edge, weights, rows, warps, 2, 3)
#define WEFT_DEEP_LINEARS(each)                                              \
  WEFT_DEEP_LINEARS_OF(each, counter, CounterEdge, Bf16Tile, 1, 2)           \
  WEFT_DEEP_LINEARS_OF(each, counter, CounterEdge, Bf16Tile, 8, 2)           \
  WEFT_DEEP_LINEARS_OF(each, tagged, TaggedEdge, Bf16Tile, 1, 2)             \
  WEFT_DEEP_LINEARS_OF(each, tagged, TaggedEdge, Bf16Tile, 8, 2)             \
  WEFT_DEEP_LINEARS_OF(each, tagged, TaggedEdge, Bf16Tile, 8, 3)             \
  WEFT_DEEP_LINEAR_OF(each, tagged, TaggedEdge, Q8Tile, 8, 2, 2, 2)          \
  WEFT_DEEP_LINEAR_OF(each, tagged, TaggedEdge, Q4Tile, 8, 2, 2, 2)          \
  WEFT_DEEP_LINEAR_OF(each, tagged, TaggedEdge, Q4WithLeastTile, 8, 2, 2, 2) \
  WEFT_DEEP_LINEAR_OF(each, tagged, TaggedEdge, Q4Group128Tile, 8, 2, 2, 2)

#define WEFT_TILED_OF(each, weights) each(weights, 1) each(weights, 2) each(weights, 4) each(weights, 8)
#define WEFT_TILED(each)        \
  WEFT_TILED_OF(each, Bf16Tile) \
  WEFT_TILED_OF(each, Q8Tile)   \
  WEFT_TILED_OF(each, Q4Tile) WEFT_TILED_OF(each, Q4WithLeastTile) WEFT_TILED_OF(each, Q4Group128Tile)
