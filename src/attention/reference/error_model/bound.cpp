// From the rounding of a backend to a bound of each element: the terms that numbers of the call do not change.
#include <algorithm>
#include <cmath>

#include "attention/reference/error_model/error_model.h"
#include "attention/reference/error_model/terms.h"
#include "attention/variant/tokens.h"

namespace weft {
namespace {
constexpr double kOfLse = 2e-6 / 0x1p-24;  // roundings of lse that sqrt(head_dim_qk) is multiplied by
}

ErrorBound::ErrorBound(const AttentionSpec& spec, const attention::Rounding& rounding)
    : integers_(rounding.query_steps > 0), sums_(rounding.sums) {
  const double d = spec.head_dim_qk;
  // Rounding of a logit: its dot product, and the scaling, transform and exponent's argument after it.
  double logit = (std::sqrt(d) + 6) * reference::kReferenceLogit * sums_;
  const bool changed = mentions(spec.variant.text, "query_transform") || mentions(spec.variant.text, "key_transform");
  // Vectors that hooks changed are rounded once more.
  const bool narrow = rounding.vectors > 0;
  const double of_vectors = reference::kReferenceLogit * (narrow ? 8 * rounding.vectors / std::sqrt(d) : 16 * sums_);
  if (changed) logit += of_vectors;
  of_lse_ = kOfLse * sums_ * std::sqrt(d);
  of_lse_vectors_ = changed && narrow ? of_vectors : 0;
  of_keys_ = 2 * logit + 24 * sums_ + rounding.probabilities;
  if (mentions(spec.variant.text, "value_transform")) of_keys_ += narrow ? rounding.vectors : 16 * sums_;

  unit_ = spec.o_dtype == DType::fp32 ? 0x1p-24 : spec.o_dtype == DType::fp16 ? 0x1p-11 : 0x1p-8;
  smallest_ = spec.o_dtype == DType::fp16 ? 0x1p-25 : 0x1p-126;  // below the normal numbers
}

double ErrorBound::operator()(int64_t kv_len, const MeasuredReference& reference, size_t i) const {
  // Sums of p and of p v over the keys, the exponential, merging.
  const double n = static_cast<double>(kv_len), c = of_keys_ + std::min(n, 4 * std::sqrt(n)) * sums_;
  const double moved = reference.moved[i] + (integers_ ? reference.coarse.at(i) : 0);
  return unit_ * std::abs(reference.o[i]) + c * reference.scale[i] + moved + smallest_;
}

double ErrorBound::of_lse(const MeasuredReference& reference, size_t state) const {
  // Logits are sums of head_dim_qk products, rounded once each.
  return of_lse_ * (1 + std::abs(reference.lse[state])) + of_lse_vectors_ + reference.moved_lse[state] +
         (integers_ ? reference.coarse_lse.at(state) : 0);
}

}  // namespace weft
