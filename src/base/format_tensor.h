// A tensor in a message is its shape: check(..., "q: {} has rank {}", q, q.rank()). The text is made only when the
// message is, so checks that pass allocate nothing.
#pragma once

#include <fmt/format.h>

#include "weft/tensor.h"

template <>
struct fmt::formatter<weft::TensorView> : fmt::formatter<std::string_view> {
  auto format(const weft::TensorView& tensor, fmt::format_context& context) const {
    return fmt::formatter<std::string_view>::format(weft::shape_string(tensor), context);
  }
};
