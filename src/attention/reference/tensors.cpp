#include "attention/reference/tensors.h"

#include <bit>
#include <cmath>
#include <limits>

#include "attention/reference/reference.h"
#include "base/check.h"

namespace weft {
namespace reference {
namespace {

Vector kv_vector(const AttentionSpec& spec, const TensorView& kv, const Token& at, int h) {
  const bool nhd = spec.layout == Layout::nhd;
  if (spec.kv_form == KvForm::ragged) return nhd ? vector_at(kv, at.inner, h) : vector_at(kv, h, at.inner);
  return nhd ? vector_at(kv, at.outer, at.inner, h) : vector_at(kv, at.outer, h, at.inner);
}

// Of the scale of token t, counted along its axis.
int64_t scale_row(const AttentionSpec& spec, int64_t t) {
  return spec.kv_scales < KvScales::token ? 0 : spec.kv_scales == KvScales::token ? t : t / spec.kv_scale_group;
}

// The stored numbers times their scale.
Vector dequantised(const AttentionSpec& spec, const TensorView& kv, const TensorView& scales, const Token& at, int h) {
  Vector v = kv_vector(spec, kv, at, h);
  const double scale = scale_of(spec, scales, at, h);
  for (double& x : v) x *= scale;
  return v;
}

}  // namespace

Vector vector_at(const TensorView& t, int64_t i, int64_t j, int64_t k) {
  const bool rank4 = t.rank() == 4;
  const int64_t start = i * t.stride(0) + j * t.stride(1) + (rank4 ? k * t.stride(2) : 0);
  Vector v(static_cast<size_t>(t.shape(t.rank() - 1)));
  for (size_t d = 0; d < v.size(); ++d) v[d] = element(t, start + static_cast<int64_t>(d) * t.stride(t.rank() - 1));
  return v;
}

double scale_of(const AttentionSpec& spec, const TensorView& scales, const Token& at, int h) {
  if (spec.kv_scales == KvScales::none) return 1;
  const bool by_token = spec.kv_scales >= KvScales::token;
  const Token scale{by_token ? at.outer : 0, scale_row(spec, at.inner), 0};
  return kv_vector(spec, scales, scale, spec.kv_scales == KvScales::tensor ? 0 : h)[0];
}

Vector key_vector(const AttentionSpec& spec, const KvCache& kv, const Token& at, int h) {
  if (spec.kv_form != KvForm::latent) return dequantised(spec, kv.k, kv.k_scale, at, h);
  Vector key = vector_at(kv.k, at.outer, at.inner);
  if (!kv.v) return key;
  const Vector rotated = vector_at(kv.v, at.outer, at.inner);
  key.insert(key.end(), rotated.begin(), rotated.end());
  return key;
}

Vector value_vector(const AttentionSpec& spec, const KvCache& kv, const Token& at, int h) {
  if (spec.kv_form != KvForm::latent) return dequantised(spec, kv.v, kv.v_scale, at, h);
  Vector value = vector_at(kv.k, at.outer, at.inner);
  value.resize(static_cast<size_t>(spec.head_dim_vo));
  return value;
}

}  // namespace reference

double element(const TensorView& t, int64_t offset) {
  if (t.dtype() == DType::fp32) return static_cast<double>(t.as<const float>()[offset]);
  switch (t.dtype()) {
    case DType::int8: return t.as<const int8_t>()[offset];
    case DType::int4: return static_cast<int8_t>(t.as<const uint8_t>()[offset / 2] << (offset % 2 == 0 ? 4 : 0)) >> 4;
    case DType::fp8_e4m3: {
      const int code = t.as<const uint8_t>()[offset], exponent = code >> 3 & 15, mantissa = code & 7;
      if ((code & 127) == 127) return std::numeric_limits<double>::quiet_NaN();
      const double x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      return code < 128 ? x : -x;
    }
    default: break;
  }
  const bool e5m2 = t.dtype() == DType::fp8_e5m2;  // an fp16 without its low byte
  const uint16_t bits =
      e5m2 ? static_cast<uint16_t>(t.as<const uint8_t>()[offset] << 8) : t.as<const uint16_t>()[offset];
  if (t.dtype() == DType::bf16) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  check(t.dtype() == DType::fp16 || e5m2, ErrorCode::invalid_dtype, "the reference reads no {}", to_string(t.dtype()));
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace weft
