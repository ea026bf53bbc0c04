// Arrays of other libraries, seen where they lie: never a copy.
//
//   m.def("rms_norm", [](ArrayLike x, ...) {
//     const Array view = to_array("x", x.object);     // holds the memory
//     ...
//
// What has the buffer protocol and comes from numpy is read through it, all else through __dlpack__.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/device.h"
#include "weft/tensor.h"

namespace weft::python {

namespace nb = nanobind;

// A view, and what keeps its memory alive.
struct Array {
  TensorView view = {};
  bool read_only = false;
  std::shared_ptr<const void> owner = {};
};

// weft.TensorView: an array of another library, or memory of Weft's own, with Weft's type. It may call bytes int4 or
// fp8, which few libraries have a type for.
struct PyTensorView {
  Array array;
  nb::object source;  // none: Weft's own memory
};

// Whether to_array takes objects of this type.
bool is_array(nb::handle object) noexcept;

// Throws TypeError for what is no array, Error(invalid_dtype | invalid_stride | invalid_shape | invalid_device |
// invalid_argument) that begins with `name` for what Weft does not read, and what the array's own __dlpack__ throws.
// Strides that are negative, or 0 along an axis of more than one element, are refused. Of a card, the array's library
// is asked to be done with it where `stream` goes on.
Array to_array(std::string_view name, nb::handle object, const Stream& stream = {});
// The same, of one that is written: throws Error(invalid_argument) where it is read-only.
Array to_written_array(std::string_view name, nb::handle object, const Stream& stream = {});

// The array's memory as elements of `dtype`: 8 bits may be called any type of 8, or two numbers of int4 along the last
// axis; 16 bits fp16 or bf16.
Array retyped(std::string_view name, const Array& array, DType dtype);

// Memory of Weft's own.
Array new_array(std::span<const int64_t> shape, DType dtype, Device device);
// An array like `like`, of the same library and on the same device, its elements not set: weft._arrays.empty.
nb::any new_like(nb::handle like, std::span<const int64_t> shape, DType dtype, Device device);

// A capsule for __dlpack__: versioned where `versioned`. Throws BufferError for a read-only array without versions.
nb::object to_capsule(const Array& array, bool versioned);

// Parameters. Each holds the object alone: what it is for stands in a message only the call knows.
struct ArrayLike {
  nb::object object;
};
struct IntsLike {  // an array of integers, or a sequence of them
  nb::object object;
};
struct DeviceLike {  // weft.Device, or its name
  nb::object object;
};
// Throws Error(invalid_device) for a name that is none.
Device device_of(const DeviceLike& device);

}  // namespace weft::python

namespace nanobind::detail {

template <>
struct type_caster<weft::python::ArrayLike> {
  NB_TYPE_CASTER(weft::python::ArrayLike, const_name("weft._typing.Array"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (!weft::python::is_array(source)) return false;
    value.object = borrow(source);
    return true;
  }
  static handle from_cpp(const weft::python::ArrayLike& array, rv_policy, cleanup_list*) noexcept {
    return handle(array.object).inc_ref();
  }
};

template <>
struct type_caster<weft::python::IntsLike> {
  NB_TYPE_CASTER(weft::python::IntsLike, const_name("weft._typing.Ints"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    const bool sequence = PyList_Check(source.ptr()) || PyTuple_Check(source.ptr());
    if (!sequence && !weft::python::is_array(source)) return false;
    value.object = borrow(source);
    return true;
  }
  static handle from_cpp(const weft::python::IntsLike& array, rv_policy, cleanup_list*) noexcept {
    return handle(array.object).inc_ref();
  }
};

template <>
struct type_caster<weft::python::DeviceLike> {
  NB_TYPE_CASTER(weft::python::DeviceLike, const_name("weft.Device | str"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(source.ptr()) && !(isinstance<weft::Device>(source) && inst_ready(source))) return false;
    value.object = borrow(source);
    return true;
  }
  static handle from_cpp(const weft::python::DeviceLike& device, rv_policy, cleanup_list*) noexcept {
    return handle(device.object).inc_ref();
  }
};

}  // namespace nanobind::detail
