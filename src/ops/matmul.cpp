// A product of two matrices: its arguments, whatever the device.
#include "base/check.h"
#include "ops/backend.h"
#include "ops/elementwise.h"
#include "weft/ops.h"

namespace weft {
namespace ops {

bool lies_by_columns(const TensorView& x) { return x.stride(1) != 1 || (x.stride(0) == 1 && x.shape(1) > 1); }

namespace {

void check_type(std::string_view name, const TensorView& x, Device device) {
  const bool is_of_card = x && x.dtype() == DType::bf16 && device != Device::cpu();
  check(!x || x.dtype() == DType::fp32 || is_of_card, ErrorCode::invalid_dtype,
        "matmul: {} has dtype {}; fp32 is needed, or bf16 of all three on a card", name, to_string(x.dtype()));
}

// Rows or columns without gaps, the others behind each other.
void check_factor(std::string_view name, const TensorView& x, Device device) {
  check_type(name, x, device);
  check_memory("matmul", name, x, device);
  check(x.rank() == 2, ErrorCode::invalid_shape, "matmul: {} {} has rank {}; 2 is needed", name, x, x.rank());
  const bool by_columns = lies_by_columns(x);
  const int64_t within = x.stride(by_columns ? 0 : 1), between = x.stride(by_columns ? 1 : 0);
  const int64_t extent = x.shape(by_columns ? 0 : 1), others = x.shape(by_columns ? 1 : 0);
  check((extent <= 1 || within == 1) && (others <= 1 || between >= extent), ErrorCode::invalid_stride,
        "matmul: {} has strides {} and {}; one must be 1, the other at least {}: copy it to contiguous memory first",
        name, x.stride(0), x.stride(1), extent);
}

}  // namespace
}  // namespace ops

void matmul(const TensorView& a, const TensorView& b, const TensorView& c, MatmulOptions options, Stream stream) {
  using namespace ops;
  const Device device = device_of(a);
  check_factor("a", a, device);
  check_factor("b", b, device);
  check_type("c", c, device);
  check_memory("matmul", "c", c, device);
  check(c.rank() == 2, ErrorCode::invalid_shape, "matmul: c {} has rank {}; 2 is needed", c, c.rank());
  check(c.shape(1) <= 1 || c.stride(1) == 1, ErrorCode::invalid_stride,
        "matmul: the last axis of c has stride {}; 1 is needed: copy it to contiguous memory first", c.stride(1));
  check_written("matmul", "c", c);
  check(a.dtype() == c.dtype() && b.dtype() == c.dtype(), ErrorCode::invalid_dtype,
        "matmul: a, b and c have dtypes {}, {} and {}; one is needed", to_string(a.dtype()), to_string(b.dtype()),
        to_string(c.dtype()));
  check(a.shape(1) == b.shape(0) && a.shape(1) > 0, ErrorCode::invalid_shape,
        "matmul: a has {} columns, b {} rows; they must be equal and 1 or more", a.shape(1), b.shape(0));
  check(c.shape(0) == a.shape(0) && c.shape(1) == b.shape(1), ErrorCode::invalid_shape,
        "matmul: c is {} x {}; the rows of a and the columns of b are {} and {}", c.shape(0), c.shape(1), a.shape(0),
        b.shape(1));
  if (options.workspace != nullptr)
    check(options.workspace->device() == device, ErrorCode::invalid_device,
          "matmul: workspace is on {}; it must be where a, b and c are, on {}", to_string(options.workspace->device()),
          to_string(device));
  check_stream("matmul", stream, device);
  const Backend& backend = backend_of("matmul", device);
  if (c.size() == 0) return;
  backend.multiply({.a = a, .b = b, .c = c, .add = options.add, .exact = !options.tf32, .workspace = options.workspace},
                   stream);
}

}  // namespace weft
