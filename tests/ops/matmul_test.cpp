// Products of two matrices against fp64: by rows and by columns, with gaps, added, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft {
namespace {

// [rows, cols] by rows or by columns, each with a gap of NaN behind it.
struct Matrix {
  std::vector<float> data;
  TensorView view;
  Matrix(int64_t rows, int64_t cols, bool by_columns, int64_t gap, unsigned seed) {
    const int64_t outer = by_columns ? cols : rows, ld = (by_columns ? rows : cols) + gap;
    data.assign(static_cast<size_t>(outer * ld), std::nanf(""));
    view = TensorView(data.data(), DType::fp32, std::vector<int64_t>{rows, cols},
                      by_columns ? std::vector<int64_t>{1, ld} : std::vector<int64_t>{ld, 1});
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) at(i, j) = normal(random);
  }
  float& at(int64_t i, int64_t j) { return data[static_cast<size_t>(i * view.stride(0) + j * view.stride(1))]; }
};

void expect_product(int64_t rows, int64_t inner, int64_t cols, bool a_by_columns, bool b_by_columns, bool add) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << inner << " x " << cols << (a_by_columns ? ", a^T" : "")
                                    << (b_by_columns ? ", b^T" : "") << (add ? ", added" : ""));
  Matrix a(rows, inner, a_by_columns, 3, 1), b(inner, cols, b_by_columns, 5, 2), c(rows, cols, false, 2, 3);
  Matrix before = c;
  matmul(a.view, b.view, c.view, {.add = add});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      double sum = add ? before.at(i, j) : 0., bound = std::abs(sum);
      for (int64_t k = 0; k < inner; ++k) {
        sum += double{a.at(i, k)} * b.at(k, j);
        bound += std::abs(double{a.at(i, k)} * b.at(k, j));
      }
      ASSERT_NEAR(c.at(i, j), sum, 1e-6 * bound) << i << ", " << j;
    }
  for (size_t i = 0; i < c.data.size(); ++i) ASSERT_EQ(std::isnan(c.data[i]), std::isnan(before.data[i])) << i;
}

TEST(Matmul, AgreesWithFp64HoweverItsFactorsLie) {
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      for (const bool add : {false, true}) {
        expect_product(7, 33, 21, a, b, add);
        expect_product(130, 64, 96, a, b, add);
      }
  for (const auto& [rows, inner, cols] : {std::array{1, 1, 1}, std::array{1, 300, 5}, std::array{5, 1, 300}})
    expect_product(rows, inner, cols, false, true, false);
}

TEST(Matmul, OfNoRowsOrColumnsDoesNothing) {
  Matrix a(0, 4, false, 0, 1), b(4, 3, false, 0, 2), c(0, 3, false, 0, 3);
  matmul(a.view, b.view, c.view);
  Matrix narrow(4, 0, false, 1, 1), d(2, 4, false, 0, 1), e(2, 0, false, 1, 1);
  matmul(d.view, narrow.view, e.view);
}

ErrorCode code_of(const TensorView& a, const TensorView& b, const TensorView& c, Stream stream = {}) {
  try {
    matmul(a, b, c, {}, stream);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  Matrix a(2, 3, false, 0, 1), b(3, 4, false, 0, 2), c(2, 4, false, 0, 3);
  const Matrix other(4, 4, false, 0, 4), none(2, 0, false, 1, 5), of_none(0, 4, false, 0, 5);
  EXPECT_EQ(code_of(a.view, other.view, c.view), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of(a.view, b.view, other.view), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of(none.view, of_none.view, c.view), ErrorCode::invalid_shape);
  const TensorView cube(a.data.data(), DType::fp32, {1, 2, 3}), halves(a.data.data(), DType::fp16, {2, 3});
  EXPECT_EQ(code_of(cube, b.view, c.view), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of(halves, b.view, c.view), ErrorCode::invalid_dtype);
  const TensorView narrow(a.data.data(), DType::bf16, {2, 3});
  EXPECT_EQ(code_of(narrow, b.view, c.view), ErrorCode::invalid_dtype);
  const auto strided = [&](std::vector<int64_t> strides) {
    return TensorView(other.data.data(), DType::fp32, std::vector<int64_t>{2, 3}, strides);
  };
  for (const std::vector<int64_t>& strides : {std::vector<int64_t>{6, 2}, {2, 1}, {1, 1}, {0, 1}})
    EXPECT_EQ(code_of(strided(strides), b.view, c.view), ErrorCode::invalid_stride) << strides[0] << " " << strides[1];
  Matrix turned(2, 4, true, 0, 3);
  EXPECT_EQ(code_of(a.view, b.view, turned.view), ErrorCode::invalid_stride);
  EXPECT_EQ(code_of(a.view, b.view, c.view, Stream::cuda(nullptr)), ErrorCode::invalid_device);
  EXPECT_EQ(code_of({}, b.view, c.view), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace weft
