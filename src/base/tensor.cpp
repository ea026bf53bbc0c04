#include "weft/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "base/check.h"
#include "base/enum_names.h"

namespace weft {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr DTypeInfo kDTypes[] = {
    {DType::fp32, "fp32", 32},        {DType::fp16, "fp16", 16},        {DType::bf16, "bf16", 16},
    {DType::fp8_e4m3, "fp8_e4m3", 8}, {DType::fp8_e5m2, "fp8_e5m2", 8}, {DType::int8, "int8", 8},
    {DType::int4, "int4", 4},         {DType::uint8, "uint8", 8},       {DType::int32, "int32", 32},
    {DType::int64, "int64", 64},      {DType::fp64, "fp64", 64},
};

const DTypeInfo& info(DType dtype) {
  for (const DTypeInfo& entry : kDTypes)
    if (entry.dtype == dtype) return entry;
  fail(ErrorCode::invalid_dtype, "dtype has the value {}, which names no type", static_cast<int>(dtype));
}

}  // namespace

std::string_view to_string(DType dtype) { return info(dtype).name; }

int bits_of(DType dtype) { return info(dtype).bits; }

DType dtype_from_string(std::string_view name) {
  std::string known;
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  fail(ErrorCode::invalid_dtype, "dtype '{}' is not known; known are {}", name, known);
}

std::string_view to_string(DeviceKind kind) {
  static constexpr std::string_view kNames[] = {"cpu", "cuda", "cuda_host"};
  return enum_name(kNames, kind);
}

std::string to_string(Device device) {
  if (device == Device::cpu()) return "cpu";
  return fmt::format("{}:{}", to_string(device.kind), device.index);
}

TensorView::TensorView(const void* data, DType dtype, std::initializer_list<int64_t> shape, Device device)
    : TensorView(data, dtype, std::span<const int64_t>(shape.begin(), shape.size()), device) {}

TensorView::TensorView(const void* data, DType dtype, std::span<const int64_t> shape, Device device)
    : TensorView(data, dtype, shape, {}, device) {}

TensorView::TensorView(const void* data, DType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
                       Device device)
    : data_(const_cast<void*>(data)), dtype_(dtype), device_(device), rank_(static_cast<int>(shape.size())) {
  info(dtype);
  check(shape.size() <= kMaxRank, ErrorCode::invalid_shape, "a tensor has rank {}; at most {} is supported",
        shape.size(), kMaxRank);
  check(strides.empty() || strides.size() == shape.size(), ErrorCode::invalid_stride,
        "{} strides for a tensor of rank {}; give one a dimension, or none for row-major", strides.size(), rank_);
  int64_t size = 1;
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    const auto a = static_cast<size_t>(axis);
    check(shape[a] >= 0, ErrorCode::invalid_shape, "shape[{}] = {}; extents are 0 or more", axis, shape[a]);
    shape_[a] = shape[a];
    strides_[a] = strides.empty() ? size : strides[a];
    check(!__builtin_mul_overflow(size, shape[a] > 0 ? shape[a] : 1, &size), ErrorCode::invalid_shape,
          "shape {} has more elements than 64 bits can count", fmt::join(shape, " x "));
  }
}

int64_t TensorView::size() const {
  int64_t size = 1;
  for (int64_t extent : shape()) size *= extent;
  return size;
}

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  for (int axis = rank_ - 1; axis >= 0; --axis) {
    if (shape(axis) == 0) return true;
    if (shape(axis) != 1 && stride(axis) != expected) return false;
    expected *= shape(axis);
  }
  return true;
}

TensorView TensorView::slice(int axis, int64_t begin, int64_t end) const {
  check(axis >= 0 && axis < rank_, ErrorCode::invalid_shape, "slice: axis {} of a tensor of rank {}", axis, rank_);
  check(begin >= 0 && begin <= end && end <= shape(axis), ErrorCode::invalid_shape,
        "slice: [{}, {}) does not lie within [0, {})", begin, end, shape(axis));
  const int64_t bits = begin * stride(axis) * bits_of(dtype_);
  check(bits % 8 == 0, ErrorCode::invalid_stride,
        "index {} of axis {} (stride {}) lies within a byte, which holds two of int4; an even number of elements "
        "from the first is needed: copy the tensor, or begin elsewhere",
        begin, axis, stride(axis));
  TensorView view = *this;
  view.data_ = static_cast<char*>(data_) + bits / 8;
  view.shape_[static_cast<size_t>(axis)] = end - begin;
  return view;
}

TensorView TensorView::select(int axis, int64_t index) const {
  check(axis >= 0 && axis < rank_ && index >= 0 && index < shape(axis), ErrorCode::invalid_shape,
        "select: index {} of axis {} of {}; allowed are 0 to the axis's extent, that not included", index, axis,
        shape_string(*this));
  TensorView view = slice(axis, index, index + 1);
  for (int a = axis; a + 1 < rank_; ++a) {
    view.shape_[static_cast<size_t>(a)] = shape(a + 1);
    view.strides_[static_cast<size_t>(a)] = stride(a + 1);
  }
  --view.rank_;
  return view;
}

TensorView TensorView::permute(std::initializer_list<int> axes) const {
  check(static_cast<int>(axes.size()) == rank_, ErrorCode::invalid_shape, "permute: {} axes for a tensor of rank {}",
        axes.size(), rank_);
  TensorView view = *this;
  unsigned seen = 0;
  size_t to = 0;
  for (int from : axes) {
    check(from >= 0 && from < rank_ && !(seen >> from & 1), ErrorCode::invalid_shape,
          "permute: axis {} is out of range or named twice", from);
    seen |= 1u << from;
    view.shape_[to] = shape(from);
    view.strides_[to++] = stride(from);
  }
  return view;
}

std::string shape_string(const TensorView& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape(), ", ")); }

}  // namespace weft
