// What kernels over rows share.
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/reduce.h"

namespace weft::ops {

WEFT_INLINE float* row_of(const CardRows& rows, i64 i) {
  return rows.data + i / rows.inner * rows.outer_stride + i % rows.inner * rows.inner_stride;
}

// 1 / sqrt(mean(x^2) + eps) in two factors, so that neither squares nor the root leave the range of floats: x * before
// is multiplied by after.
struct NormFactors {
  float before, after;
};

WEFT_INLINE bool is_usual(float mean_square) { return mean_square >= 1e-36f && mean_square <= 3e38f; }
WEFT_INLINE NormFactors usual_factors(float mean_square) { return {1.f, 1.f / ptx::square_root(mean_square)}; }

// Of n elements that the lanes of a warp share, element(i) the i-th, whose squares sum up to `squares` (in float, or
// beyond). All lanes call.
template <class Element>
WEFT_INLINE NormFactors norm_factors(int n, float eps, float squares, const Element& element) {
  const float mean = squares / static_cast<float>(n) + eps;
  if (is_usual(mean)) return usual_factors(mean);
  float largest = 0;
  WEFT_NO_UNROLL
  for (int i = ptx::lane(); i < n; i += 32) {
    const float x = element(i);
    largest = ptx::larger(largest, x < 0.f ? -x : x);
  }
  largest = tile::lane_max(largest);
  // Not below 2^-100, so that the inverse is a number.
  const float unit = largest < 7.9e-31f ? 7.9e-31f : largest, before = 1.f / unit;
  squares = 0;
  WEFT_NO_UNROLL
  for (int i = ptx::lane(); i < n; i += 32) squares += element(i) * before * (element(i) * before);
  const float relative = tile::lane_sum(squares) / static_cast<float>(n) + eps / unit / unit;
  return {before, 1.f / ptx::square_root(relative)};
}
template <class Element>
WEFT_INLINE NormFactors norm_factors(int n, float eps, const Element& element) {
  float squares = 0;
  for (int i = ptx::lane(); i < n; i += 32) squares += element(i) * element(i);
  return norm_factors(n, eps, tile::lane_sum(squares), element);
}

// Of each lane's own row, which there is or not, of the first `rows` rows of x with n elements, whose squares
// squares_of(row) knows. All lanes call.
template <class Squares>
WEFT_INLINE NormFactors factors_of_own_row(const float* x, i64 ldx, int rows, int n, float eps, int own_row,
                                           const Squares& squares_of) {
  const float mean = own_row < rows ? squares_of(own_row) / static_cast<float>(n) + eps : 1.f;
  if (ptx::ballot(!is_usual(mean)) == 0) return usual_factors(mean);
  NormFactors own = {1.f, 1.f};
  WEFT_NO_UNROLL
  for (int row = 0; row < rows; ++row) {
    const float* from = x + row * ldx;
    const NormFactors factors = norm_factors(n, eps, squares_of(row), [&](int i) { return from[i]; });
    if (row == own_row) own = factors;
  }
  return own;
}

}  // namespace weft::ops
