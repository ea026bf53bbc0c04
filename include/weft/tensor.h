// TensorView: a typed, strided view of memory that someone else owns, and the element types.
//
//   std::vector<float> x(6);
//   weft::TensorView v(x.data(), weft::DType::fp32, {2, 3});       // row-major
//   v.slice(0, 1, 2).shape(0);                                     // 1
//
// Views are values: cheap to copy, safe to share between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace weft {

enum class DType : uint8_t { fp32, fp16, bf16, fp8_e4m3, fp8_e5m2, int8, int4, uint8, int32, int64, fp64 };

std::string_view to_string(DType dtype);
// Throws Error(invalid_dtype) for a name that to_string does not produce.
DType dtype_from_string(std::string_view name);
// Bits of one element: int4 has 4.
int bits_of(DType dtype);

// cuda_host is pinned memory of the host, which cards copy at full speed: what takes tensors of the CPU takes those
// too.
enum class DeviceKind : uint8_t { cpu, cuda, cuda_host };
std::string_view to_string(DeviceKind kind);

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  // of cpu: 0, all CPUs are one device
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }
  static constexpr Device cuda_host(int index = 0) { return {DeviceKind::cuda_host, index}; }
  friend constexpr bool operator==(Device, Device) = default;
};
std::string to_string(Device device);  // "cpu", "cuda:0", "cuda_host:0"

inline constexpr int kMaxRank = 6;

// Shape and strides are in elements. An empty view (data == nullptr, rank 0) means "not given".
class TensorView {
 public:
  TensorView() = default;
  // Row-major. Throws Error(invalid_shape) for a negative extent or a rank above kMaxRank.
  TensorView(const void* data, DType dtype, std::initializer_list<int64_t> shape, Device device = Device::cpu());
  TensorView(const void* data, DType dtype, std::span<const int64_t> shape, Device device = Device::cpu());
  TensorView(const void* data, DType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides,
             Device device = Device::cpu());

  explicit operator bool() const { return data_ != nullptr || rank_ != 0; }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int rank() const { return rank_; }
  int64_t shape(int axis) const { return shape_[static_cast<size_t>(axis)]; }
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  std::span<const int64_t> shape() const { return {shape_.data(), static_cast<size_t>(rank_)}; }
  std::span<const int64_t> strides() const { return {strides_.data(), static_cast<size_t>(rank_)}; }
  int64_t size() const;        // number of elements
  bool is_contiguous() const;  // row-major without gaps
  // Elements [begin, end) along one axis, same strides. Throws Error(invalid_shape), and of int4, two a byte and the
  // even one low, Error(invalid_stride) where the first lies within a byte.
  TensorView slice(int axis, int64_t begin, int64_t end) const;
  // Drops one axis at the given index; throws like slice.
  TensorView select(int axis, int64_t index) const;
  // Axes in another order, e.g. permute({0, 2, 1}).
  TensorView permute(std::initializer_list<int> axes) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::fp32;
  Device device_;
  int rank_ = 0;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<int64_t, kMaxRank> strides_{};
};

// "[4, 32, 128]"
std::string shape_string(const TensorView& tensor);

}  // namespace weft
