// Maps of tensors, by which kernels copy boxes (tile/abi/tensor_map.h): which tensors they describe, and what a card
// reads of them.
//
//   const abi::TensorMap keys = tensor_map(runtime(), device, layout, "k");      // a member of the kernel's argument
//
// A map is made once for a tensor and kept by who launches with it. The last ones that were made are found again: a
// tensor that comes with every call costs a look, and no call of the driver.
#pragma once

#include <string>
#include <string_view>

#include "jit/cuda/runtime.h"
#include "tile/abi/tensor_map.h"

namespace weft::cuda {

// Why no map describes the tensor: "required a stride of ..., and dimension 1 has 24"; empty where one does.
std::string why_no_map(const abi::TensorLayout& layout);
// Throws Error(unsupported) with that reason; `name` is the tensor's. Thread-safe.
abi::TensorMap tensor_map(const Runtime& on, Device device, const abi::TensorLayout& layout, std::string_view name);

}  // namespace weft::cuda
