// A product on the CPU: the columns of b are packed as weights are, then multiplied like those (gemm/linear.h).
#include <algorithm>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/elementwise.h"
#include "ops/gemm/linear.h"

namespace weft::ops {
namespace {

// Rows [begin, end) of the transposed of x, one behind the other.
void read_columns(const TensorView& x, int64_t begin, int64_t end, float* to) {
  const int64_t rows = x.shape(0);
  const auto* from = x.as<float>();
  if (lies_by_columns(x)) {
    for (int64_t j = begin; j < end; ++j, to += rows) std::copy_n(from + j * x.stride(1), rows, to);
    return;
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = begin; j < end; ++j) to[(j - begin) * rows + i] = from[i * x.stride(0) + j];
}

}  // namespace

void multiply_on_cpu(const MatmulCall& call, Stream stream) {
  const auto &a = call.a, &b = call.b, &c = call.c;
  const int64_t rows = c.shape(0), inner = a.shape(1), cols = c.shape(1);
  WorkerTeam& team = stream.team();
  const ops::WeightSource source{.rows = cols, .cols = inner, .read = [&](int64_t begin, int64_t end, void* to) {
                                   read_columns(b, begin, end, static_cast<float*>(to));
                                 }};
  const gemm::PackedLinear weights = gemm::pack_linear({&source, 1}, Precision::exact, current_isa(), team);
  std::vector<float> own_rows, sums;
  const float* x = a.as<float>();
  int64_t ldx = a.stride(0);
  if (lies_by_columns(a)) {
    own_rows.resize(static_cast<size_t>(rows * inner));
    const int64_t shape[] = {inner, rows}, strides[] = {a.stride(1), a.stride(0)};
    const TensorView transposed(x, DType::fp32, shape, strides);
    for_rows(team, rows, inner, [&](int64_t begin, int64_t end) {
      read_columns(transposed, begin, end, own_rows.data() + begin * inner);
    });
    x = own_rows.data(), ldx = inner;
  }
  gemm::Scratch scratch;
  if (!call.add) return gemm::linear(weights, x, rows, ldx, c.as<float>(), c.stride(0), scratch, team);
  sums.resize(static_cast<size_t>(rows * cols));
  gemm::linear(weights, x, rows, ldx, sums.data(), cols, scratch, team);
  for_rows(team, rows, cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      elementwise().add(sums.data() + i * cols, cols, c.as<float>() + i * c.stride(0));
  });
}

}  // namespace weft::ops
