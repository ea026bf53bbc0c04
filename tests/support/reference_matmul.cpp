#include "tests/support/reference_matmul.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::testing {
namespace {

using Lanes [[gnu::vector_size(Matrix::kLanes * sizeof(double))]] = double;

// A tile of kTileX rows of x against kTileW rows of w: 12 sums stay in registers.
constexpr int64_t kTileX = 4, kTileW = 3;
// Rows of w that stay in the second-level cache while all rows of x pass by.
constexpr int64_t kBlockW = 48;

// Rows past the end repeat the last one: all tiles are this code, so whichever tile a row falls into, the compiler has
// rounded its sums in the same way.
[[gnu::always_inline]] inline void multiply_tile(const Matrix& x, int64_t x_row, int64_t x_end, const Matrix& w,
                                                 int64_t w_row, int64_t w_end, Matrix& y) {
  int64_t x_rows[kTileX], w_rows[kTileW];
  for (int64_t i = 0; i < kTileX; ++i) x_rows[i] = std::min(x_row + i, x_end - 1);
  for (int64_t j = 0; j < kTileW; ++j) w_rows[j] = std::min(w_row + j, w_end - 1);
  Lanes sum[kTileX][kTileW] = {};
  for (int64_t k = 0; k < x.stride(); k += Matrix::kLanes) {
    Lanes xs[kTileX], ws[kTileW];  // in registers, as the sums, once these loops are unrolled
#pragma GCC unroll 4
    for (int64_t i = 0; i < kTileX; ++i) std::memcpy(&xs[i], x.row(x_rows[i]) + k, sizeof xs[i]);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kTileW; ++j) std::memcpy(&ws[j], w.row(w_rows[j]) + k, sizeof ws[j]);
    for (int64_t i = 0; i < kTileX; ++i)
      for (int64_t j = 0; j < kTileW; ++j) sum[i][j] += xs[i] * ws[j];
  }
  for (int64_t i = 0; i < kTileX; ++i)
    for (int64_t j = 0; j < kTileW; ++j)
      y.row(x_rows[i])[w_rows[j]] = (sum[i][j][0] + sum[i][j][1]) + (sum[i][j][2] + sum[i][j][3]);
}

[[gnu::always_inline]] inline void multiply_rows(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w,
                                                 Matrix& y) {
  for (int64_t block = 0; block < w.rows(); block += kBlockW) {
    const int64_t block_end = std::min(block + kBlockW, w.rows());
    for (int64_t i = x_begin; i < x_end; i += kTileX)
      for (int64_t j = block; j < block_end; j += kTileW) multiply_tile(x, i, x_end, w, j, block_end, y);
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void multiply_avx2(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w,
                                               Matrix& y) {
  multiply_rows(x, x_begin, x_end, w, y);
}
#endif

void multiply_plain(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w, Matrix& y) {
  multiply_rows(x, x_begin, x_end, w, y);
}

}  // namespace

Matrix::Matrix(int64_t rows, int64_t cols) : rows_(rows), cols_(cols), stride_((cols + kLanes - 1) / kLanes * kLanes) {
  const auto bytes = static_cast<size_t>(rows * stride_) * sizeof(double);
  auto* data = static_cast<double*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, bytes);
  data_.reset(data);
}

void multiply(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w, Matrix& y) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2(x, x_begin, x_end, w, y);
#endif
  multiply_plain(x, x_begin, x_end, w, y);
}

}  // namespace weft::testing
