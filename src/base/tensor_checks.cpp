#include "base/tensor_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/format_tensor.h"

namespace weft {
namespace {

// Either direction steps as far. Of INT64_MIN too.
uint64_t length_of(int64_t stride) {
  return stride < 0 ? 0 - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

}  // namespace

void check_written(std::string_view op, std::string_view name, const TensorView& tensor) {
  std::array<int, kMaxRank> axes;
  size_t n = 0;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (tensor.shape(axis) == 0) return;
    if (tensor.shape(axis) > 1) axes[n++] = axis;
  }
  std::sort(axes.begin(), axes.begin() + n,
            [&](int a, int b) { return length_of(tensor.stride(a)) < length_of(tensor.stride(b)); });
  constexpr uint64_t kFarthest = std::numeric_limits<uint64_t>::max();
  uint64_t reach = 0;  // from the first element to the last one of the axes so far
  for (size_t i = 0; i < n; ++i) {
    const int axis = axes[i];
    const uint64_t step = length_of(tensor.stride(axis)), steps = static_cast<uint64_t>(tensor.shape(axis)) - 1;
    check(step > reach, ErrorCode::invalid_stride,
          "{}{}{}: {} with strides [{}] overlaps itself: stride {} along axis {} is not above the {} that the axes of "
          "smaller strides reach; what is written may not overlap: give it memory of its own",
          op, op.empty() ? "" : ": ", name, tensor, fmt::join(tensor.strides(), ", "), tensor.stride(axis), axis,
          reach);
    uint64_t along;
    if (__builtin_mul_overflow(step, steps, &along) || __builtin_add_overflow(reach, along, &reach)) reach = kFarthest;
  }
}

}  // namespace weft
