#include "tests/ops/exact_sum.h"

#include <algorithm>
#include <cmath>

namespace weft::test {

ExactSum exact_sum(const Weights& w, const float* x, int64_t row, Precision precision, Isa isa) {
  const double* v = w.values.data() + row * w.cols;
  double sum = 0, products = 0, largest = 0, rounding = 0;
  for (int64_t k = 0; k < w.cols; ++k) {
    sum += v[k] * x[k];
    products += std::abs(v[k] * x[k]);
    largest = std::max<double>(largest, std::abs(x[k]));
  }
  const bool integer = is_quantised(w.type) && precision != Precision::exact;
  if (integer) {
    for (int64_t k = 0; k < w.cols; k += 32) {
      double block = 0, weights = 0;
      for (int64_t i = k; i < std::min(k + 32, w.cols); ++i) {
        block = std::max<double>(block, std::abs(x[i]));
        weights += std::abs(v[i]);
      }
      rounding += weights * (precision == Precision::fast ? block / 254 : largest / 65024);
    }
    // d and m cancel: their parts are rounded apart.
    if (w.type == WeightType::q4_1 || w.type == WeightType::q4_k) products *= 4;
  } else if (w.type == WeightType::bf16 && precision != Precision::exact && isa == Isa::avx512_bf16) {
    rounding = products * 0x1p-8;
  }
  return {sum, rounding * 1.001 + products * static_cast<double>(w.cols) * 0x1p-24 + 1e-30};
}

}  // namespace weft::test
