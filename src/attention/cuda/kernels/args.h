// What a launch of attention is given, by value: the call, and the plan in its workspace.
#pragma once

#include "attention/abi.h"
#include "tile/abi/tensor_map.h"

namespace weft::attention::cuda {

struct Call : RunArgs {  // params: of the host, whose copy is Args::params
  const PlanHeader* plan;
  unsigned* mask_error;  // WEFT_CHECK: becomes 1 where a row sees a key of a tile that was to be left out; else null
  // The kernel before this one may have written the lists' pages and positions, and lengths: those of planned_pages.
  bool lists_are_new;
};

template <int kSlots>
struct Args {
  Call call;
  abi::Slot params[kSlots];
};

// Of kernels to which keys and values come in boxes.
template <int kSlots>
struct BoxArgs {
  Call call;
  abi::TensorMap k, v;
  abi::Slot params[kSlots];
};

// The whole of a kernel's argument is at most so large, on every driver.
inline constexpr int kMaxArgsBytes = 4096;
inline constexpr int kMaxSlots = (kMaxArgsBytes - static_cast<int>(sizeof(Call))) / static_cast<int>(sizeof(abi::Slot));
// The size of BoxArgs is a multiple of a map's alignment.
inline constexpr int kMaxBoxSlots =
    (kMaxArgsBytes - static_cast<int>(sizeof(BoxArgs<1>))) / static_cast<int>(sizeof(abi::Slot)) + 1;
static_assert(sizeof(BoxArgs<kMaxBoxSlots>) <= kMaxArgsBytes);

}  // namespace weft::attention::cuda
