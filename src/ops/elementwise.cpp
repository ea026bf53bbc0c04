// Norms, gates and caps: one row after another, rows over the team.
#include "ops/elementwise.h"

#include <cmath>

#include "weft/ops.h"

namespace weft {
namespace ops {

const ElementwiseTable& elementwise() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(elementwise)
    default: throw InternalError("an instruction set without row loops");
  }
}

namespace {

// Rows [rows] or [rows][heads] of a tensor, flattened.
struct RowsOf {
  float* data;
  int64_t inner, outer_stride, inner_stride;
  explicit RowsOf(const TensorView& x)
      : data(x.as<float>()),
        inner(x.rank() == 3 ? x.shape(1) : 1),
        outer_stride(x.stride(0)),
        inner_stride(x.rank() == 3 ? x.stride(1) : 0) {}
  float* row(int64_t i) const { return data + i / inner * outer_stride + i % inner * inner_stride; }
};

int64_t row_count(const TensorView& x) { return x.rank() == 3 ? x.shape(0) * x.shape(1) : x.shape(0); }

void check_norm(std::string_view op, const TensorView& x, const TensorView& weight, float eps, const TensorView& y) {
  check_fp32(op, "x", x, 2, 3);
  check_fp32(op, "weight", weight, 1, 1);
  check_fp32(op, "y", y, 2, 3);
  check_same_shape(op, "y", y, "x", x);
  check_written(op, "y", y);
  const int64_t dim = x.shape(x.rank() - 1);
  check(weight.shape(0) == dim && dim > 0, ErrorCode::invalid_shape,
        "{}: weight has {} elements, rows of x {}; they must be equal and 1 or more", op, weight.shape(0), dim);
  check(eps >= 0.f && std::isfinite(eps), ErrorCode::invalid_argument,
        "{}: eps = {}; a finite number of 0 or more is needed", op, eps);
}

// y = f(gate) * up, by the row loop that is given.
void gate_and_mul(std::string_view op, decltype(ElementwiseTable::silu_and_mul) loop, const TensorView& gate,
                  const TensorView& up, const TensorView& y, Stream stream) {
  check_fp32(op, "gate", gate, 2, 2);
  check_fp32(op, "up", up, 2, 2);
  check_fp32(op, "y", y, 2, 2);
  check_same_shape(op, "up", up, "gate", gate);
  check_same_shape(op, "y", y, "gate", gate);
  check_written(op, "y", y);
  const RowsOf g(gate), u(up), to(y);
  const int64_t dim = gate.shape(1);
  for_rows(stream.team(), gate.shape(0), 4 * dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) loop(g.row(i), u.row(i), dim, to.row(i));
  });
}

}  // namespace
}  // namespace ops

using namespace ops;

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& y, Stream stream) {
  check_norm("rms_norm", x, weight, eps, y);
  const RowsOf from(x), to(y);
  const int64_t dim = weight.shape(0);
  const float* w = weight.as<float>();
  const ElementwiseTable& loops = elementwise();
  for_rows(stream.team(), row_count(x), dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) loops.rms_norm(from.row(i), w, dim, eps, to.row(i));
  });
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& y, Stream stream) {
  check_norm("add_rms_norm", x, weight, eps, y);
  check_fp32("add_rms_norm", "residual", residual, 2, 3);
  check_same_shape("add_rms_norm", "residual", residual, "x", x);
  check_written("add_rms_norm", "residual", residual);
  const RowsOf from(x), sum(residual), to(y);
  const int64_t dim = weight.shape(0);
  const float* w = weight.as<float>();
  const ElementwiseTable& loops = elementwise();
  for_rows(stream.team(), row_count(x), 2 * dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      loops.add(from.row(i), dim, sum.row(i));
      loops.rms_norm(sum.row(i), w, dim, eps, to.row(i));
    }
  });
}

void silu_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream) {
  gate_and_mul("silu_and_mul", elementwise().silu_and_mul, gate, up, y, stream);
}

void gelu_tanh_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream) {
  gate_and_mul("gelu_tanh_and_mul", elementwise().gelu_tanh_and_mul, gate, up, y, stream);
}

void soft_cap(const TensorView& x, float cap, Stream stream) {
  check_fp32("soft_cap", "x", x, 2, 2);
  check_written("soft_cap", "x", x);
  check(cap > 0.f, ErrorCode::invalid_argument, "soft_cap: cap = {}; a number above 0 is needed, inf is no cap", cap);
  if (std::isinf(cap)) return;
  const RowsOf rows(x);
  const int64_t dim = x.shape(1);
  const ElementwiseTable& loops = elementwise();
  for_rows(stream.team(), x.shape(0), 4 * dim, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) loops.soft_cap(rows.row(i), dim, cap);
  });
}

}  // namespace weft
