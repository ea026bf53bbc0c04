#include "attention/abi.h"
#include "attention/cpu/traits.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "device/cpu/cpuid.h"

namespace weft {

DType compute_type(const AttentionSpec& spec, Isa isa) {
  const bool has_dot = isa == Isa::avx512_bf16;
  check(has_dot || spec.compute != DType::bf16, ErrorCode::unsupported,
        "compute = bf16: required avx512_bf16, supported {}, missing the dot product of bf16; leave compute out, or "
        "choose fp32",
        to_string(isa));
  check(spec.compute != DType::bf16 || spec.kv_dtype == DType::bf16, ErrorCode::unsupported,
        "compute = bf16: required products in bf16 of KV {}, supported {} of KV bf16, missing its conversion; leave "
        "compute out, or choose fp32",
        to_string(spec.kv_dtype), to_string(isa));
  check(spec.compute != DType::fp16, ErrorCode::unsupported,
        "compute = fp16: required products in fp16, supported {}, missing them; leave compute out, or choose fp32",
        to_string(isa));
  const bool has_byte_dot = isa >= Isa::avx512;
  check(has_byte_dot || spec.compute != DType::int8, ErrorCode::unsupported,
        "compute = int8: required avx512, supported {}, missing the dot product of bytes; leave compute out, or choose "
        "fp32",
        to_string(isa));
  const bool integers = spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4;
  if (integers && has_byte_dot) return spec.compute.value_or(DType::int8);
  const bool bf16 = spec.q_dtype == DType::bf16 && spec.kv_dtype == DType::bf16 && has_dot;
  // What hooks make is multiplied in pairs where rows are few.
  const bool in_tiles = has_bf16_tiles() && spec.head_dim_qk % abi::kColumnStep == 0 &&
                        !names_hook(spec.variant, {"key_transform", "value_transform"});
  return spec.compute.value_or(bf16 && (is_bf16_dot_fast() || in_tiles) ? DType::bf16 : DType::fp32);
}

}  // namespace weft
