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

template <int64_t NX, int64_t NW>
[[gnu::always_inline]] inline void multiply_tile(const double* x, const double* w, int64_t stride, int64_t x_row,
                                                 int64_t w_row, Matrix& y) {
  Lanes sum[NX][NW] = {};
  for (int64_t k = 0; k < stride; k += Matrix::kLanes) {
    Lanes xs[NX], ws[NW];
    for (int64_t i = 0; i < NX; ++i) std::memcpy(&xs[i], x + i * stride + k, sizeof xs[i]);
    for (int64_t j = 0; j < NW; ++j) std::memcpy(&ws[j], w + j * stride + k, sizeof ws[j]);
    for (int64_t i = 0; i < NX; ++i)
      for (int64_t j = 0; j < NW; ++j) sum[i][j] += xs[i] * ws[j];
  }
  for (int64_t i = 0; i < NX; ++i)
    for (int64_t j = 0; j < NW; ++j)
      y.row(x_row + i)[w_row + j] = (sum[i][j][0] + sum[i][j][1]) + (sum[i][j][2] + sum[i][j][3]);
}

[[gnu::always_inline]] inline void multiply_rows(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w,
                                                 Matrix& y) {
  const int64_t stride = x.stride();
  for (int64_t block = 0; block < w.rows(); block += kBlockW) {
    const int64_t block_end = std::min(block + kBlockW, w.rows());
    for (int64_t i = x_begin; i < x_end;) {
      const bool full = i + kTileX <= x_end;
      for (int64_t j = block; j < block_end;) {
        const bool full_w = j + kTileW <= block_end;
        if (full && full_w)
          multiply_tile<kTileX, kTileW>(x.row(i), w.row(j), stride, i, j, y);
        else if (full)
          multiply_tile<kTileX, 1>(x.row(i), w.row(j), stride, i, j, y);
        else if (full_w)
          multiply_tile<1, kTileW>(x.row(i), w.row(j), stride, i, j, y);
        else
          multiply_tile<1, 1>(x.row(i), w.row(j), stride, i, j, y);
        j += full_w ? kTileW : 1;
      }
      i += full ? kTileX : 1;
    }
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
