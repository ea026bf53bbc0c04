// Checks of tensors that every operator makes in the same way.
#pragma once

#include <string_view>

#include "weft/tensor.h"

namespace weft {

// For every tensor that is written: throws Error(invalid_stride) unless each stride, of axes in the order of their
// strides, steps over all that the smaller ones reach. So no two elements share memory, and no worker writes what
// another one has written. `op`, where
// one is given, stands before the name in messages.
void check_written(std::string_view op, std::string_view name, const TensorView& tensor);

}  // namespace weft
