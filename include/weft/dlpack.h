// TensorView to and from DLPack, without a DLPack header of Weft's own: the functions are templates over the
// structs that the caller's <dlpack/dlpack.h> declares (DLTensor, DLManagedTensor, DLManagedTensorVersioned).
//
//   weft::TensorView q = weft::from_dlpack(*managed);            // a view; `managed` still owns the memory
//   weft::DlpackTensor<DLTensor> out(view);  use(&out.tensor);   // shape and strides live in `out`
//   DLManagedTensor* given = weft::to_dlpack<DLManagedTensor>(view, owner);
//
// Strides are in elements on both sides. Format: https://dmlc.github.io/dlpack, version 1.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "weft/error.h"
#include "weft/tensor.h"

namespace weft {
namespace dlpack {

// Values of DLDataTypeCode and DLDeviceType, as the format fixes them.
enum TypeCode : int { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6, kFloat8_e4m3fn = 10, kFloat8_e5m2 = 12 };
enum DeviceType : int { kCpu = 1, kCuda = 2, kCudaHost = 3 };
// DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: what is smaller than a byte is not packed.
inline constexpr uint64_t kSubBytePadded = 4;

struct Type {
  DType dtype;
  int code, bits;
};
inline constexpr Type kTypes[] = {
    {DType::fp32, kFloat, 32},
    {DType::fp16, kFloat, 16},
    {DType::bf16, kBfloat, 16},
    {DType::fp64, kFloat, 64},
    {DType::fp8_e4m3, kFloat8_e4m3fn, 8},
    {DType::fp8_e5m2, kFloat8_e5m2, 8},
    {DType::int8, kInt, 8},
    {DType::int4, kInt, 4},
    {DType::uint8, kUInt, 8},
    {DType::int32, kInt, 32},
    {DType::int64, kInt, 64},
    {DType::uint8, kBool, 8},
};

inline void check(bool ok, ErrorCode code, const char* what, const std::string& detail) {
  if (!ok) throw Error(code, std::string("DLPack tensor: ") + what + detail);
}

template <class T>
concept Managed = requires(T t) {
  t.dl_tensor;
};

}  // namespace dlpack

// A view of the same memory; whoever owns the tensor must outlive it. A managed tensor works too.
// Throws Error(invalid_dtype | invalid_shape | invalid_stride | invalid_device | invalid_argument).
template <class Tensor>
TensorView from_dlpack(const Tensor& t) {
  if constexpr (dlpack::Managed<Tensor>) {
    if constexpr (requires { t.version.major; })
      dlpack::check(t.version.major == 1, ErrorCode::unsupported, "major version ",
                    std::to_string(t.version.major) + "; required and supported is 1");
    if constexpr (requires { t.flags; })
      dlpack::check(t.dl_tensor.dtype.bits >= 8 || (t.flags & dlpack::kSubBytePadded) == 0, ErrorCode::unsupported,
                    "elements of ",
                    std::to_string(t.dl_tensor.dtype.bits) + " bits in a byte each; required is two a byte: pack them");
    return from_dlpack(t.dl_tensor);
  } else {
    using std::to_string;
    dlpack::check(t.dtype.lanes == 1, ErrorCode::invalid_dtype, "lanes = ",
                  to_string(t.dtype.lanes) + "; only 1 is allowed: give vector elements an axis of their own");
    const dlpack::Type* type = nullptr;
    for (const dlpack::Type& known : dlpack::kTypes)
      if (type == nullptr && known.code == t.dtype.code && known.bits == t.dtype.bits) type = &known;
    dlpack::check(
        type != nullptr, ErrorCode::invalid_dtype, "type code ",
        to_string(t.dtype.code) + " with " + to_string(t.dtype.bits) +
            " bits; allowed are float 16/32/64, bfloat 16, float8 e4m3fn/e5m2, int 4/8/32/64, uint 8 and bool");
    const int device = static_cast<int>(t.device.device_type);
    dlpack::check(device == dlpack::kCpu || device == dlpack::kCudaHost || device == dlpack::kCuda,
                  ErrorCode::invalid_device, "device type ",
                  to_string(device) + "; allowed are 1 (CPU), 2 (CUDA) and 3 (pinned host memory)");
    dlpack::check(t.ndim >= 0 && t.ndim <= kMaxRank, ErrorCode::invalid_shape,
                  "ndim = ", to_string(t.ndim) + "; allowed are 0 to " + to_string(kMaxRank));
    dlpack::check(t.ndim == 0 || t.shape != nullptr, ErrorCode::invalid_shape, "shape", " is null");
    const auto rank = static_cast<size_t>(t.ndim);
    const std::span<const int64_t> shape(t.shape, rank);
    // Null strides mean row-major.
    const std::span<const int64_t> strides(t.strides, t.strides == nullptr ? 0 : rank);
    const char* data = static_cast<const char*>(t.data) + (t.data == nullptr ? 0 : t.byte_offset);
    const TensorView view(data, type->dtype, shape, strides,
                          device == dlpack::kCuda       ? Device::cuda(t.device.device_id)
                          : device == dlpack::kCudaHost ? Device::cuda_host(t.device.device_id)
                                                        : Device::cpu());
    dlpack::check(t.data != nullptr || view.size() == 0, ErrorCode::invalid_argument, "data",
                  " is null, but elements are not 0");
    dlpack::check(type->bits < 8 || reinterpret_cast<uintptr_t>(data) % static_cast<size_t>(type->bits / 8) == 0,
                  ErrorCode::invalid_stride, "data + byte_offset", " is not aligned to an element");
    return view;
  }
}

// A DLTensor together with the shape and strides it points to.
template <class Tensor>
class DlpackTensor {
 public:
  explicit DlpackTensor(const TensorView& view) {
    const dlpack::Type* type = dlpack::kTypes;
    while (type->dtype != view.dtype()) ++type;
    for (int axis = 0; axis < view.rank(); ++axis) {
      shape_[static_cast<size_t>(axis)] = view.shape(axis);
      strides_[static_cast<size_t>(axis)] = view.stride(axis);
    }
    tensor.data = view.data();
    constexpr int kDevices[] = {dlpack::kCpu, dlpack::kCuda, dlpack::kCudaHost};  // by DeviceKind
    tensor.device.device_type =
        static_cast<decltype(tensor.device.device_type)>(kDevices[static_cast<int>(view.device().kind)]);
    tensor.device.device_id = view.device().index;
    tensor.ndim = view.rank();
    tensor.dtype.code = static_cast<decltype(tensor.dtype.code)>(type->code);
    tensor.dtype.bits = static_cast<decltype(tensor.dtype.bits)>(type->bits);
    tensor.dtype.lanes = 1;
    tensor.shape = shape_.data();
    tensor.strides = strides_.data();
    tensor.byte_offset = 0;
  }
  DlpackTensor(const DlpackTensor&) = delete;
  DlpackTensor& operator=(const DlpackTensor&) = delete;

  Tensor tensor{};

 private:
  std::array<int64_t, kMaxRank> shape_{}, strides_{};
};

// A managed tensor over the view's memory, which `owner` keeps alive until the tensor's deleter is called.
template <dlpack::Managed ManagedTensor>
ManagedTensor* to_dlpack(const TensorView& view, std::shared_ptr<const void> owner) {
  struct Holder {
    Holder(const TensorView& v, std::shared_ptr<const void> o) : dl(v), owner(std::move(o)) {}
    DlpackTensor<std::remove_cvref_t<decltype(std::declval<ManagedTensor>().dl_tensor)>> dl;
    std::shared_ptr<const void> owner;
    ManagedTensor managed{};
  };
  auto holder = std::make_unique<Holder>(view, std::move(owner));
  ManagedTensor& managed = holder->managed;
  if constexpr (requires { managed.version.major; }) managed.version.major = 1;
  managed.dl_tensor = holder->dl.tensor;
  managed.manager_ctx = holder.get();
  managed.deleter = [](ManagedTensor* self) { delete static_cast<Holder*>(self->manager_ctx); };
  return &holder.release()->managed;
}

}  // namespace weft
