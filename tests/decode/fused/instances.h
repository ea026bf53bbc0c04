// The kernels that tests of fused decoding run in the host machine. WEFT_DEEP_LINEARS(each): each(symbol, edge, warps,
// pairs, pieces).
#pragma once

#define WEFT_DEEP_LINEARS_OF(each, name, edge, warps)                          \
  each(weft_deep_linear_##name##_##warps##_1x1, edge, warps, 1, 1)             \
      each(weft_deep_linear_##name##_##warps##_1x2, edge, warps, 1, 2)         \
          each(weft_deep_linear_##name##_##warps##_2x1, edge, warps, 2, 1)     \
              each(weft_deep_linear_##name##_##warps##_2x2, edge, warps, 2, 2) \
                  each(weft_deep_linear_##name##_##warps##_2x3, edge, warps, 2, 3)
#define WEFT_DEEP_LINEARS(each)                       \
  WEFT_DEEP_LINEARS_OF(each, counter, CounterEdge, 2) \
  WEFT_DEEP_LINEARS_OF(each, tagged, TaggedEdge, 2)   \
  WEFT_DEEP_LINEARS_OF(each, tagged, TaggedEdge, 3)
