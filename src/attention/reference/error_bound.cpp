// How far a kernel's output may be from the reference. docs/numerics.md derives every term.
#include <algorithm>
#include <cmath>

#include "attention/reference/reference.h"
#include "attention/spec.h"
#include "attention/variant/tokens.h"

namespace weft {
namespace {
constexpr double u32 = 0x1p-24, u16 = 0x1p-8;
}

ErrorBound::ErrorBound(const AttentionSpec& spec, DType compute) : integers_(compute == DType::int8) {
  const double d = spec.head_dim_qk;
  // Rounding of a logit: its dot product, and the scaling, transform and exponent's argument after it.
  double logit = (std::sqrt(d) + 6) * kReferenceLogit * u32;
  const bool vectors = mentions(spec.variant.text, "query_transform") || mentions(spec.variant.text, "key_transform");
  // Transformed vectors are rounded to the compute type once more.
  const double of_vectors = kReferenceLogit * (compute == DType::bf16 ? 8 * u16 / std::sqrt(d) : 16 * u32);
  if (vectors) logit += of_vectors;
  of_lse_ = 2e-6 * std::sqrt(d);
  of_lse_vectors_ = vectors && compute == DType::bf16 ? of_vectors : 0;
  of_keys_ = 2 * logit + 24 * u32;
  if (compute == DType::bf16) of_keys_ += u16;  // p
  if (mentions(spec.variant.text, "value_transform")) of_keys_ += compute == DType::bf16 ? u16 : 16 * u32;

  unit_ = spec.o_dtype == DType::fp32 ? u32 : spec.o_dtype == DType::fp16 ? 0x1p-11 : u16;
  smallest_ = spec.o_dtype == DType::fp16 ? 0x1p-25 : 0x1p-126;  // below the normal numbers
}

double ErrorBound::operator()(int64_t kv_len, const ReferenceResult& reference, size_t i) const {
  // Sums of p and of p v over the keys, the exponential, merging.
  const double n = static_cast<double>(kv_len), c = of_keys_ + std::min(n, 4 * std::sqrt(n)) * u32;
  const double moved = reference.moved[i] + (integers_ ? reference.coarse[i] : 0);
  return unit_ * std::abs(reference.o[i]) + c * reference.scale[i] + moved + smallest_;
}

double ErrorBound::of_lse(const ReferenceResult& reference, size_t state) const {
  // Logits are sums of head_dim_qk products, rounded once each.
  return of_lse_ * (1 + std::abs(reference.lse[state])) + of_lse_vectors_ + reference.moved_lse[state] +
         (integers_ ? reference.coarse_lse[state] : 0);
}

}  // namespace weft
