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

#define WEFT_CACHES(X)                                                                           \
  X(weft_append_fp32_none, AppendArgs, WEFT_APPEND(weft_append_fp32_none, float, none))          \
  X(weft_append_fp16_none, AppendArgs, WEFT_APPEND(weft_append_fp16_none, fp16, none))           \
  X(weft_append_bf16_none, AppendArgs, WEFT_APPEND(weft_append_bf16_none, bf16, none))           \
  X(weft_append_int8_token, AppendArgs, WEFT_APPEND(weft_append_int8_token, signed char, token)) \
  X(weft_append_int8_given, AppendArgs, WEFT_APPEND(weft_append_int8_given, signed char, given)) \
  X(weft_qkv_fp32_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_fp32_none_fp32, float, none, float))     \
  X(weft_qkv_bf16_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_bf16_none_fp32, bf16, none, float))      \
  X(weft_qkv_bf16_none_bf16, QkvArgs, WEFT_QKV(weft_qkv_bf16_none_bf16, bf16, none, bf16))       \
  X(weft_qkv_fp16_none_fp32, QkvArgs, WEFT_QKV(weft_qkv_fp16_none_fp32, fp16, none, float))      \
  X(weft_qkv_int8_token_fp32, QkvArgs, WEFT_QKV(weft_qkv_int8_token_fp32, signed char, token, float))

#define WEFT_ELEMENTWISE(X)    \
  X(weft_norm, NormArgs, )     \
  X(weft_gate, GateArgs, )     \
  X(weft_cap, CapArgs, )       \
  X(weft_rotate, RotateArgs, ) \
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
