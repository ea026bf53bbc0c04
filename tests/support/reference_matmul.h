// y = x w^T in double, the one hot loop of the reference forward pass.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace weft::testing {

// A matrix whose rows are padded with zeros to a multiple of kLanes and start on 32 bytes.
class Matrix {
 public:
  static constexpr int64_t kLanes = 4;
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols);
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t stride() const { return stride_; }
  double* row(int64_t index) { return data_.get() + index * stride_; }
  const double* row(int64_t index) const { return data_.get() + index * stride_; }

 private:
  struct Free {
    void operator()(double* data) const { std::free(data); }
  };
  int64_t rows_ = 0, cols_ = 0, stride_ = 0;
  std::unique_ptr<double[], Free> data_;
};

// Calls job(begin, end) for parts of [0, count) on several threads.
template <class Job>
void parallel_for(int num_threads, int64_t count, const Job& job) {
  if (num_threads <= 1 || count <= 1) return job(int64_t{0}, count);
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i)
    threads.emplace_back([&, i] { job(count * i / num_threads, count * (i + 1) / num_threads); });
  for (std::thread& thread : threads) thread.join();
}

// y[i][j] = sum over k of x[i][k] w[j][k], for x rows [x_begin, x_end) and all rows of w. Rows must have equal strides.
void multiply(const Matrix& x, int64_t x_begin, int64_t x_end, const Matrix& w, Matrix& y);

}  // namespace weft::testing
