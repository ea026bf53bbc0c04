// How far a kernel's output may be from the reference. docs/numerics.md derives every term.
#include <algorithm>
#include <cmath>

#include "attention/leaf.h"
#include "attention/reference.h"
#include "attention/variant_text.h"

namespace weft {

double error_bound(const AttentionSpec& spec, DType compute, int64_t kv_len, double o_reference, double scale,
                   double coarse) {
  constexpr double u32 = 0x1p-24, u16 = 0x1p-8;
  const double n = static_cast<double>(kv_len), d = spec.head_dim_qk;
  // Rounding of a logit: its dot product, and the scaling, transform and exponent's argument after it.
  double logit = (std::sqrt(d) + 6) * kReferenceLogit * u32;
  const bool vectors = mentions(spec.variant.text, "query_transform") || mentions(spec.variant.text, "key_transform");
  // Transformed vectors are rounded to the compute type once more.
  if (vectors) logit += kReferenceLogit * (compute == DType::bf16 ? 8 * u16 / std::sqrt(d) : 16 * u32);
  // Sums of p and of p v over the keys, the exponential, merging.
  double c = 2 * logit + (std::min(n, 4 * std::sqrt(n)) + 24) * u32;
  if (compute == DType::bf16) c += u16;  // p
  if (mentions(spec.variant.text, "value_transform")) c += compute == DType::bf16 ? u16 : 16 * u32;

  const double unit = spec.o_dtype == DType::fp32 ? u32 : spec.o_dtype == DType::fp16 ? 0x1p-11 : u16;
  const double smallest = spec.o_dtype == DType::fp16 ? 0x1p-25 : 0x1p-126;  // below the normal numbers
  return unit * std::abs(o_reference) + c * scale + (compute == DType::int8 ? coarse : 0) + smallest;
}

}  // namespace weft
