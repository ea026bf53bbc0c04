// Norms, gates and caps: their arguments, whatever the device.
#include "ops/elementwise.h"

#include <cmath>

#include "ops/backend.h"
#include "weft/ops.h"

namespace weft {
namespace ops {

const ElementwiseTable& elementwise() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(elementwise)
    default: throw InternalError("an instruction set without row loops");
  }
}

const float* as_floats(DType dtype, const void* from, int64_t n, float* scratch) {
  if (dtype == DType::fp32) return static_cast<const float*>(from);
  const auto convert = dtype == DType::bf16 ? elementwise().from_bf16 : elementwise().from_fp16;
  convert(static_cast<const unsigned short*>(from), n, scratch);
  return scratch;
}

namespace {

void check_norm(std::string_view op, const NormCall& call, Stream stream, Device device) {
  check_fp32(op, "x", call.x, 2, 3, device);
  check_fp32(op, "weight", call.weight, 1, 1, device);
  check_fp32(op, "y", call.y, 2, 3, device);
  check_same_shape(op, "y", call.y, "x", call.x);
  check_written(op, "y", call.y);
  const int64_t dim = call.x.shape(call.x.rank() - 1);
  check(call.weight.shape(0) == dim && dim > 0, ErrorCode::invalid_shape,
        "{}: weight has {} elements, rows of x {}; they must be equal and 1 or more", op, call.weight.shape(0), dim);
  check(call.eps >= 0.f && std::isfinite(call.eps), ErrorCode::invalid_argument,
        "{}: eps = {}; a finite number of 0 or more is needed", op, call.eps);
  check_stream(op, stream, device);
}

void gate_and_mul(std::string_view op, GateKind kind, const TensorView& gate, const TensorView& up, const TensorView& y,
                  Stream stream) {
  const Device device = device_of(gate);
  check_fp32(op, "gate", gate, 2, 2, device);
  check_fp32(op, "up", up, 2, 2, device);
  check_fp32(op, "y", y, 2, 2, device);
  check_same_shape(op, "up", up, "gate", gate);
  check_same_shape(op, "y", y, "gate", gate);
  check_written(op, "y", y);
  check_stream(op, stream, device);
  backend_of(op, device).gate_and_mul(kind, gate, up, y, stream);
}

}  // namespace
}  // namespace ops

using namespace ops;

void rms_norm(const TensorView& x, const TensorView& weight, float eps, const TensorView& y, Stream stream) {
  const Device device = device_of(x);
  const NormCall call{.x = x, .weight = weight, .y = y, .eps = eps};
  check_norm("rms_norm", call, stream, device);
  backend_of("rms_norm", device).norm(call, stream);
}

void add_rms_norm(const TensorView& x, const TensorView& residual, const TensorView& weight, float eps,
                  const TensorView& y, Stream stream) {
  const Device device = device_of(x);
  const NormCall call{.x = x, .residual = residual, .weight = weight, .y = y, .eps = eps};
  check_norm("add_rms_norm", call, stream, device);
  check_fp32("add_rms_norm", "residual", residual, 2, 3, device);
  check_same_shape("add_rms_norm", "residual", residual, "x", x);
  check_written("add_rms_norm", "residual", residual);
  backend_of("add_rms_norm", device).norm(call, stream);
}

void silu_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream) {
  gate_and_mul("silu_and_mul", GateKind::silu, gate, up, y, stream);
}

void gelu_tanh_and_mul(const TensorView& gate, const TensorView& up, const TensorView& y, Stream stream) {
  gate_and_mul("gelu_tanh_and_mul", GateKind::gelu_tanh, gate, up, y, stream);
}

void soft_cap(const TensorView& x, float cap, Stream stream) {
  const Device device = device_of(x);
  check_fp32("soft_cap", "x", x, 2, 2, device);
  check_written("soft_cap", "x", x);
  check(cap > 0.f, ErrorCode::invalid_argument, "soft_cap: cap = {}; a number above 0 is needed, inf is no cap", cap);
  check_stream("soft_cap", stream, device);
  if (!std::isinf(cap)) backend_of("soft_cap", device).soft_cap(x, cap, stream);
}

}  // namespace weft
