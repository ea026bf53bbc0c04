// Numbers of 8 and 4 bits from fp32, and back.
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/format_tensor.h"
#include "ops/elementwise.h"
#include "ops/narrow.h"
#include "ops/paged.h"
#include "weft/ops.h"

namespace weft {
namespace {

// x [rows, heads, dim], its numbers and the scales of their parts; rank 2 is one head.
struct Call {
  Call(std::string_view op, const TensorView& x, const TensorView& q, const TensorView& scales) {
    ops::check_fp32(op, "x", x, 2, 3);
    check(static_cast<bool>(q), ErrorCode::invalid_argument, "{}: q is not given", op);
    check(ops::is_narrow(q.dtype()), ErrorCode::invalid_dtype,
          "{}: q has dtype {}; fp8_e4m3, fp8_e5m2, int8 and int4 are supported", op, to_string(q.dtype()));
    ops::check_memory(op, "q", q);
    ops::check_same_shape(op, "q", q, "x", x);
    const int last = x.rank() - 1;
    dtype = q.dtype();
    bits = bits_of(dtype);
    ops::check_rows_of_bytes(op, "q", q);
    ops::check_fp32(op, "scales", scales, x.rank(), x.rank());
    rows = x.shape(0), heads = last == 2 ? x.shape(1) : 1, dim = x.shape(last);
    scale_rows = scales.shape(0), scale_heads = last == 2 ? scales.shape(1) : 1;
    check(scale_rows >= 1 && rows % scale_rows == 0 && (scale_heads == 1 || scale_heads == heads) &&
              scales.shape(last) == 1,
          ErrorCode::invalid_shape,
          "{}: scales is {} for x {}; 1 or a divisor of the rows, 1 or all of the heads, and 1 are needed", op, scales,
          x);
    const auto strides = [last](const TensorView& t) {
      return Strides{t.shape(0) > 1 ? t.stride(0) : 0, last == 2 && t.shape(1) > 1 ? t.stride(1) : 0};
    };
    x_data = x.as<float>(), q_data = q.as<char>(), scale_data = scales.as<float>();
    x_strides = strides(x), q_strides = strides(q), scale_strides = strides(scales);
  }

  struct Strides {
    int64_t row, head;
    int64_t at(int64_t r, int64_t h) const { return r * row + h * head; }
  };
  float* x_at(int64_t row, int64_t head) const { return x_data + x_strides.at(row, head); }
  char* q_at(int64_t row, int64_t head) const { return q_data + q_strides.at(row, head) * bits / 8; }
  // That of a row and head.
  float& scale_at(int64_t row, int64_t head) const {
    return scale_data[scale_strides.at(row / (rows / scale_rows), scale_heads == 1 ? 0 : head)];
  }

  DType dtype;
  int64_t bits, rows, heads, dim, scale_rows, scale_heads;
  float* x_data;
  char* q_data;
  float* scale_data;
  Strides x_strides, q_strides, scale_strides;
};

}  // namespace

void quantize(const TensorView& x, const TensorView& q, const TensorView& scales, Stream stream) {
  const Call call("quantize", x, q, scales);
  check_written("quantize", "q", q);
  check_written("quantize", "scales", scales);
  const ops::ElementwiseTable& loops = ops::elementwise();
  std::vector<float> most(static_cast<size_t>(call.rows * call.heads));
  ops::for_rows(stream.team(), call.rows, call.heads * call.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t head = 0; head < call.heads; ++head)
        most[static_cast<size_t>(row * call.heads + head)] = loops.largest(call.x_at(row, head), call.dim);
  });
  for (int64_t row = 0; row < call.scale_rows; ++row)
    for (int64_t head = 0; head < call.scale_heads; ++head) call.scale_data[call.scale_strides.at(row, head)] = 0;
  for (int64_t row = 0; row < call.rows; ++row)
    for (int64_t head = 0; head < call.heads; ++head) {
      float& largest = call.scale_at(row, head);
      largest = ops::larger(most[static_cast<size_t>(row * call.heads + head)], largest);
    }
  for (int64_t row = 0; row < call.scale_rows; ++row)
    for (int64_t head = 0; head < call.scale_heads; ++head) {
      float& scale = call.scale_data[call.scale_strides.at(row, head)];
      scale = ops::scale_for(call.dtype, scale);
    }
  ops::for_rows(stream.team(), call.rows, call.heads * call.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t head = 0; head < call.heads; ++head)
        ops::to_narrow(call.dtype, call.x_at(row, head), call.dim, ops::factor_of(call.scale_at(row, head)),
                       call.q_at(row, head));
  });
}

void dequantize(const TensorView& q, const TensorView& scales, const TensorView& x, Stream stream) {
  const Call call("dequantize", x, q, scales);
  check_written("dequantize", "x", x);
  ops::for_rows(stream.team(), call.rows, call.heads * call.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t head = 0; head < call.heads; ++head)
        ops::from_narrow(call.dtype, call.q_at(row, head), call.dim, call.scale_at(row, head), call.x_at(row, head));
  });
}

}  // namespace weft
