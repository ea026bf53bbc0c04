// The kernels that the host machine has: WEFT_INSTANCES(X) calls X(symbol, arguments, what makes it).
#pragma once

#define WEFT_ONE_LINEAR(X, weights, rows, outputs)          \
  X(weft_linear_##weights##_##rows##_##outputs, LinearArgs, \
    WEFT_LINEAR(weft_linear_##weights##_##rows##_##outputs, weights, rows, outputs, false))
#define WEFT_ONE_GATED(X, weights, rows, outputs)                   \
  X(weft_linear_##weights##_##rows##_##outputs##_gated, LinearArgs, \
    WEFT_LINEAR(weft_linear_##weights##_##rows##_##outputs##_gated, weights, rows, outputs, true))
#define WEFT_LINEARS_OF(X, weights) \
  WEFT_ONE_LINEAR(X, weights, 1, 1) \
  WEFT_ONE_LINEAR(X, weights, 2, 2) \
  WEFT_ONE_GATED(X, weights, 2, 2)  \
  WEFT_ONE_LINEAR(X, weights, 1, 4) \
  WEFT_ONE_GATED(X, weights, 1, 4)  \
  WEFT_ONE_LINEAR(X, weights, 2, 4) \
  WEFT_ONE_GATED(X, weights, 2, 4)  \
  WEFT_ONE_LINEAR(X, weights, 4, 4) \
  WEFT_ONE_GATED(X, weights, 4, 4)  \
  WEFT_ONE_LINEAR(X, weights, 8, 4) \
  WEFT_ONE_GATED(X, weights, 8, 4)  \
  X(weft_embed_##weights, EmbedArgs, WEFT_EMBED(weft_embed_##weights, weights))

#define WEFT_ONE_APPEND(X, name, element, scaled) \
  X(weft_append_##name##_##scaled, AppendArgs, WEFT_APPEND(weft_append_##name##_##scaled, element, scaled))
#define WEFT_SCALED_APPENDS(X, name, element) \
  WEFT_ONE_APPEND(X, name, element, given)    \
  WEFT_ONE_APPEND(X, name, element, token)    \
  WEFT_ONE_APPEND(X, name, element, token_group)
#define WEFT_CACHES(X)                                                                       \
  WEFT_ONE_APPEND(X, fp32, float, none)                                                      \
  WEFT_ONE_APPEND(X, fp16, fp16, none)                                                       \
  WEFT_ONE_APPEND(X, bf16, bf16, none)                                                       \
  WEFT_ONE_APPEND(X, fp8_e4m3, fp8_e4m3, none)                                               \
  WEFT_ONE_APPEND(X, fp8_e5m2, fp8_e5m2, none)                                               \
  WEFT_SCALED_APPENDS(X, fp8_e4m3, fp8_e4m3)                                                 \
  WEFT_SCALED_APPENDS(X, fp8_e5m2, fp8_e5m2)                                                 \
  WEFT_SCALED_APPENDS(X, int8, signed char)                                                  \
  WEFT_SCALED_APPENDS(X, int4, int4x2)                                                       \
  X(weft_qkv_fp32_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_fp32_none_fp32, float, none, float)) \
  X(weft_qkv_bf16_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_bf16_none_fp32, bf16, none, float))  \
  X(weft_qkv_bf16_none_bf16, QkvArgs, WEFT_QKV(weft_qkv_bf16_none_bf16, bf16, none, bf16))   \
  X(weft_qkv_fp16_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_fp16_none_fp32, fp16, none, float))  \
  X(weft_qkv_int8_token_fp32, QkvArgs, WEFT_QKV(weft_qkv_int8_token_fp32, signed char, token, float))

#define WEFT_ELEMENTWISE(X)     \
  X(weft_norm, NormArgs, )      \
  X(weft_gate, GateArgs, )      \
  X(weft_cap, CapArgs, )        \
  X(weft_add_row, AddRowArgs, ) \
  X(weft_rotate, RotateArgs, )  \
  X(weft_rotate_at, RotateAtArgs, )

#define WEFT_LINEARS(X)    \
  WEFT_LINEARS_OF(X, F32)  \
  WEFT_LINEARS_OF(X, F16)  \
  WEFT_LINEARS_OF(X, BF16) \
  WEFT_LINEARS_OF(X, Q8_0) \
  WEFT_LINEARS_OF(X, Q5_0) \
  WEFT_LINEARS_OF(X, Q4_0) \
  WEFT_LINEARS_OF(X, Q4_1) \
  WEFT_LINEARS_OF(X, Q4_K) \
  WEFT_LINEARS_OF(X, Q6_K)
