#include "jit/cuda/tensor_map.h"

#include <array>
#include <mutex>
#include <optional>

#include "base/check.h"

namespace weft::cuda {
namespace {

using abi::TensorLayout;
using abi::TensorMap;

constexpr unsigned long long kMostElements = 1ull << 32, kMostStride = 1ull << 40;
constexpr int kMostBox = 256;

// Maps that were encoded, each in the one place that its layout has: an older one makes room.
class EncodedMaps {
 public:
  TensorMap get(const Runtime& on, Device device, const TensorLayout& layout) {
    Slot& slot = slots_[place_of(layout)];
    const std::lock_guard lock(mutex_);
    if (slot.on != &on || slot.device != device || !(slot.map->layout == layout)) {
      TensorMap map = {.encoded = {}, .layout = layout};
      on.encode(device, map);
      slot = {&on, device, map};
    }
    return *slot.map;
  }

 private:
  struct Slot {
    const Runtime* on = nullptr;
    Device device = Device::cpu();
    std::optional<TensorMap> map = {};
  };
  static constexpr size_t kSlots = 256;
  static size_t place_of(const TensorLayout& layout) {
    size_t hash = reinterpret_cast<size_t>(layout.data) / 16;
    for (int i = 0; i < layout.dims; ++i)
      hash = hash * 31 + layout.sizes[i] * 7 + layout.strides[i] + static_cast<size_t>(layout.box[i]);
    return (hash ^ hash >> 16) % kSlots;
  }
  std::mutex mutex_;
  std::array<Slot, kSlots> slots_ = {};
};

}  // namespace

std::string why_no_map(const TensorLayout& layout) {
  const auto& [data, dims, element_bytes, sizes, strides, box, swizzle] = layout;
  if (dims < 1 || dims > TensorLayout::kMostDims)
    return fmt::format("required 1 to {} dimensions, and it has {}", TensorLayout::kMostDims, dims);
  if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4 && element_bytes != 8)
    return fmt::format("required elements of 1, 2, 4 or 8 bytes, and it has some of {}", element_bytes);
  if (const size_t beyond = reinterpret_cast<size_t>(data) % 16; beyond != 0)
    return fmt::format("required data at a multiple of 16 bytes, and it begins {} bytes behind one", beyond);
  for (int i = 0; i < dims; ++i) {
    if (sizes[i] < 1 || sizes[i] > kMostElements)
      return fmt::format("required 1 to 2^32 elements of a dimension, and dimension {} has {}", i, sizes[i]);
    if (i > 0 && (strides[i] % 16 != 0 || strides[i] >= kMostStride))
      return fmt::format("required strides that are multiples of 16 bytes below 2^40, and dimension {} has one of {}",
                         i, strides[i]);
    if (box[i] < 1 || box[i] > kMostBox)
      return fmt::format("required a box of 1 to {} elements of a dimension, and dimension {} has {}", kMostBox, i,
                         box[i]);
  }
  if (layout.row_bytes() % 16 != 0)
    return fmt::format("required rows of a box that are multiples of 16 bytes, and they have {}", layout.row_bytes());
  // Shorter rows could be swizzled too; no tile has any.
  if (swizzle != abi::Swizzle::none && layout.row_bytes() != abi::span_of(swizzle))
    return fmt::format("required rows of a box as long as the {} bytes that its swizzle spans, and they have {}",
                       abi::span_of(swizzle), layout.row_bytes());
  return {};
}

TensorMap tensor_map(const Runtime& on, Device device, const TensorLayout& layout, std::string_view name) {
  const std::string why = why_no_map(layout);
  check(why.empty(), ErrorCode::unsupported, "{}: {}: no tensor map describes it", name, why);
  static auto* const maps = new EncodedMaps;
  return maps->get(on, device, layout);
}

}  // namespace weft::cuda
