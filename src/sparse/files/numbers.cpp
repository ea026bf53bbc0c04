#include "sparse/files/numbers.h"

#include <bit>
#include <cmath>
#include <iterator>

#include "base/check.h"
#include "base/fp16.h"

namespace weft::sparse {
namespace {

constexpr const char* kTypes = "fp32, fp64, fp16, bf16, int32 and int64";

uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

bool is_of_programs(DType dtype) {
  return dtype == DType::fp32 || dtype == DType::fp64 || dtype == DType::fp16 || dtype == DType::bf16 ||
         dtype == DType::int32 || dtype == DType::int64;
}

Array::Array(DType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  check(shape_.size() <= static_cast<size_t>(kMaxRank), ErrorCode::invalid_shape,
        "array: has {} dimensions; at most {} are allowed", shape_.size(), kMaxRank);
  int64_t size = bits_of(dtype);
  for (const int64_t extent : shape_) {
    check(extent >= 0, ErrorCode::invalid_shape, "array: has an extent of {}; 0 and more are allowed", extent);
    check(!__builtin_mul_overflow(size, extent, &size), ErrorCode::invalid_shape, "array: an extent of {} is too large",
          extent);
  }
  bytes_.resize(static_cast<size_t>(size) / 8);
}

NumbersOf::NumbersOf(const TensorView& tensor, std::string_view name) : tensor_(tensor) {
  check(is_of_programs(tensor.dtype()), ErrorCode::invalid_dtype, "{}: is of {}; allowed are {}", name,
        to_string(tensor.dtype()), kTypes);
  check(tensor.device().kind != DeviceKind::cuda, ErrorCode::invalid_device, "{}: lies on {}; copy it to the host",
        name, to_string(tensor.device()));
  check(tensor.is_contiguous(), ErrorCode::invalid_stride, "{}: is not contiguous", name);
}

bool NumbersOf::is_integer() const { return tensor_.dtype() == DType::int32 || tensor_.dtype() == DType::int64; }

double NumbersOf::real(int64_t element) const {
  switch (tensor_.dtype()) {
    case DType::fp32: return tensor_.as<float>()[element];
    case DType::fp64: return tensor_.as<double>()[element];
    case DType::fp16: return from_fp16(tensor_.as<uint16_t>()[element]);
    case DType::bf16: return std::bit_cast<float>(static_cast<uint32_t>(tensor_.as<uint16_t>()[element]) << 16);
    default: return static_cast<double>(integer(element));
  }
}

int64_t NumbersOf::integer(int64_t element) const {
  return tensor_.dtype() == DType::int32 ? tensor_.as<int32_t>()[element] : tensor_.as<int64_t>()[element];
}

void NumbersOf::append(int64_t element, std::string& text) const {
  const auto to = std::back_inserter(text);
  if (is_integer())
    fmt::format_to(to, "{}\n", integer(element));
  else if (tensor_.dtype() == DType::fp64)
    fmt::format_to(to, "{}\n", real(element));
  else
    fmt::format_to(to, "{}\n", static_cast<float>(real(element)));
}

void NumbersTo::set(int64_t element, double value) {
  switch (array_.dtype()) {
    case DType::fp64: at<double>(element) = value; break;
    case DType::fp16: at<uint16_t>(element) = to_fp16(value); break;
    case DType::bf16: at<uint16_t>(element) = bf16_of(static_cast<float>(value)); break;
    default: at<float>(element) = static_cast<float>(value);
  }
}

void NumbersTo::set_integer(int64_t element, int64_t value) {
  if (array_.dtype() == DType::int64) {
    at<int64_t>(element) = value;
    return;
  }
  if (array_.dtype() != DType::int32) return set(element, static_cast<double>(value));
  check(value >= INT32_MIN && value <= INT32_MAX, ErrorCode::invalid_argument,
        "element {} is {}, which does not fit int32", element, value);
  at<int32_t>(element) = static_cast<int32_t>(value);
}

Array converted(const Array& array, DType dtype) {
  check(is_of_programs(dtype), ErrorCode::invalid_dtype, "converted: to {}; allowed are {}", to_string(dtype), kTypes);
  if (array.dtype() == dtype) return array;
  const TensorView tensor = array.view();
  const NumbersOf from(tensor, "array");
  Array result(dtype, array.shape());
  NumbersTo to(result);
  const bool to_integers = dtype == DType::int32 || dtype == DType::int64;
  check(from.is_integer() || !to_integers, ErrorCode::invalid_dtype,
        "array: is of {}; {} is expected, which holds "
        "integers alone",
        to_string(array.dtype()), to_string(dtype));
  for (int64_t i = 0; i < tensor.size(); ++i)
    from.is_integer() ? to.set_integer(i, from.integer(i)) : to.set(i, from.real(i));
  return result;
}

Array values_at(std::span<const double> values, std::span<const int64_t> order, DType dtype) {
  check(is_of_programs(dtype), ErrorCode::invalid_dtype, "values_at: {}; allowed are {}", to_string(dtype), kTypes);
  Array result(dtype, {static_cast<int64_t>(order.size())});
  NumbersTo to(result);
  const bool to_integers = dtype == DType::int32 || dtype == DType::int64;
  for (size_t p = 0; p < order.size(); ++p) {
    if (order[p] == -1) continue;
    check(order[p] >= 0 && order[p] < static_cast<int64_t>(values.size()), ErrorCode::invalid_argument,
          "order[{}] is {}; there are {} values", p, order[p], values.size());
    const double value = values[static_cast<size_t>(order[p])];
    if (!to_integers) {
      to.set(static_cast<int64_t>(p), value);
      continue;
    }
    const bool fits = std::trunc(value) == value && std::fabs(value) <= static_cast<double>(kMaxInteger);
    check(fits, ErrorCode::invalid_argument, "values[{}] is {}, no integer that fits {}", order[p], value,
          to_string(dtype));
    to.set_integer(static_cast<int64_t>(p), static_cast<int64_t>(value));
  }
  return result;
}

}  // namespace weft::sparse
