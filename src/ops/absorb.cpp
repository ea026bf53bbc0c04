// Absorbed weights of MLA: products of two projections, head by head.
#include <algorithm>
#include <vector>

#include "base/format_tensor.h"
#include "ops/elementwise.h"
#include "weft/ops.h"

namespace weft {
namespace {

// The matrix of one head: element (i, j) at data[i * row + j * column].
struct Matrix {
  const float* data;
  int64_t row, column;
};

// to[0 .. n) = row m of (a^T b), a [inner][...], b [inner][n], both given for one head.
void product_row(const Matrix& a, const Matrix& b, int64_t m, int64_t inner, std::vector<double>& sum, float* to) {
  std::fill(sum.begin(), sum.end(), 0.);
  for (int64_t k = 0; k < inner; ++k) {
    const double x = a.data[k * a.row + m * a.column];
    const float* row = b.data + k * b.row;
    for (size_t j = 0; j < sum.size(); ++j) sum[j] += x * row[j];
  }
  for (size_t j = 0; j < sum.size(); ++j) to[j] = static_cast<float>(sum[j]);
}

void check_extents(std::string_view op, std::string_view name, const TensorView& t,
                   std::initializer_list<int64_t> required, std::string_view form) {
  ops::check_fp32(op, name, t, 3, 3);
  check(std::equal(required.begin(), required.end(), t.shape().begin()), ErrorCode::invalid_shape,
        "{}: {} is {}; {} = [{}, {}, {}] is needed", op, name, t, form, required.begin()[0], required.begin()[1],
        required.begin()[2]);
}

}  // namespace

void absorb_query_weights(const TensorView& w_uq, const TensorView& w_uk, const TensorView& w_uq_uk, Stream stream) {
  constexpr std::string_view kOp = "absorb_query_weights";
  ops::check_fp32(kOp, "w_uq", w_uq, 3, 3);
  ops::check_fp32(kOp, "w_uk", w_uk, 3, 3);
  const int64_t heads = w_uq.shape(0), nope = w_uq.shape(1), q_dim = w_uq.shape(2), rank = w_uk.shape(2);
  check_extents(kOp, "w_uk", w_uk, {heads, nope, rank}, "[heads, nope_dim, kv_lora_rank] of w_uq's heads and nope_dim");
  check_extents(kOp, "w_uq_uk", w_uq_uk, {heads, rank, q_dim}, "[heads, kv_lora_rank, q_dim]");
  check_written(kOp, "w_uq_uk", w_uq_uk);
  ops::for_rows(stream.team(), heads * rank, nope * q_dim, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(q_dim));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t h = i / rank, r = i % rank;
      product_row({w_uk.as<float>() + h * w_uk.stride(0), w_uk.stride(1), 1},
                  {w_uq.as<float>() + h * w_uq.stride(0), w_uq.stride(1), 1}, r, nope, sum,
                  w_uq_uk.as<float>() + h * w_uq_uk.stride(0) + r * w_uq_uk.stride(1));
    }
  });
}

void absorb_output_weights(const TensorView& w_uv, const TensorView& w_o, const TensorView& w_uv_o, Stream stream) {
  constexpr std::string_view kOp = "absorb_output_weights";
  ops::check_fp32(kOp, "w_uv", w_uv, 3, 3);
  ops::check_fp32(kOp, "w_o", w_o, 3, 3);
  const int64_t heads = w_uv.shape(0), v_dim = w_uv.shape(1), rank = w_uv.shape(2), hidden = w_o.shape(0);
  check_extents(kOp, "w_o", w_o, {hidden, heads, v_dim}, "[hidden, heads, v_dim] of w_uv's heads and v_dim");
  check_extents(kOp, "w_uv_o", w_uv_o, {hidden, heads, rank}, "[hidden, heads, kv_lora_rank]");
  check_written(kOp, "w_uv_o", w_uv_o);
  ops::for_rows(stream.team(), hidden * heads, v_dim * rank, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(rank));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / heads, h = i % heads;
      product_row({w_o.as<float>() + row * w_o.stride(0) + h * w_o.stride(1), 1, 0},
                  {w_uv.as<float>() + h * w_uv.stride(0), w_uv.stride(1), 1}, 0, v_dim, sum,
                  w_uv_o.as<float>() + row * w_uv_o.stride(0) + h * w_uv_o.stride(1));
    }
  });
}

}  // namespace weft
