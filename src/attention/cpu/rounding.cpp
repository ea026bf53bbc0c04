#include "attention/cpu/rounding.h"

#include <algorithm>

#include "attention/cpu/leaf.h"

namespace weft {

attention::Rounding cpu_rounding(const AttentionSpec& spec, DType compute) {
  attention::Rounding rounding{.tanh_ulps = 4, .math = float_math_text()};
  if (compute == DType::bf16) rounding.probabilities = rounding.vectors = 0x1p-8;
  if (compute == DType::int8) {
    // Two signed bytes of which the higher stays below 128; sums of a query's products with bytes fit 32 bits.
    constexpr double kMost = 32512;
    rounding.query_steps = std::min(kMost, 0x1p24 / spec.head_dim_qk);
    rounding.probability_steps = kMost;
    rounding.probability_tile = 256;
  }
  return rounding;
}

}  // namespace weft
