// What a built kernel is made of.
#pragma once

#include <cstdint>

#include "attention/kernels/cpu/core.h"
#include "attention/leaf.h"
#include "attention/traits.h"
#include "weft/attention.h"

namespace weft {

struct AttentionKernel::Impl {
  AttentionSpec spec;
  Isa isa = Isa::plain;
  DType compute = DType::fp32;
  Params params;
  LeafHandle leaf;
  const attention::cpu::CoreTable* core = nullptr;
  KernelTraits traits;
  uint64_t signature = 0;  // of traits
  // Built in, in the spec's mask or as its variant: what they read of their tensors is known, and run checks it.
  Mask custom_mask = Mask::none;   // custom, custom_packed
  const char* per_head = nullptr;  // a tensor of one number a query head, "slopes" or "sinks"
  bool check_masks = false;        // WEFT_CHECK=1 when it was built
};

// Tile classes, granule and cost constants of the CPU core for a spec. Class 0 is the direct one
// (attention::cpu::kDirectClass).
KernelTraits cpu_traits(const AttentionSpec& spec, Isa isa);

}  // namespace weft
