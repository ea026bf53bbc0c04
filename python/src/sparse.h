// The parts of weft.sparse, and the arrays that several of them give.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "array.h"
#include "weft/tensor.h"

namespace weft::python {

void define_sparse_structures(nanobind::module_& m);
void define_sparse_files(nanobind::module_& m);
void define_sparse_operators(nanobind::module_& m);

// Throws Error(invalid_shape | invalid_dtype | invalid_device | invalid_stride) for what is not [n] of that type, fp32
// or fp64, side by side in memory of the host.
void check_vector(const char* name, const TensorView& view, DType dtype);

// A copy of these numbers, [numbers] of that type.
template <class T>
PyTensorView array_of(std::span<const T> numbers, DType dtype) {
  const std::array<int64_t, 1> shape{std::ssize(numbers)};
  PyTensorView made{new_array(shape, dtype, Device::cpu()), nb::none()};
  std::ranges::copy(numbers, made.array.view.as<T>());
  return made;
}

}  // namespace weft::python
