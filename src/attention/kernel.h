// What a built kernel is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "attention/backend.h"
#include "attention/params.h"
#include "attention/traits.h"
#include "weft/attention.h"

namespace weft {

struct AttentionKernel::Impl {
  AttentionSpec spec;
  Device device;
  const attention::Backend* backend = nullptr;
  std::string target;  // of the backend
  DType compute = DType::fp32;
  Params params;
  std::shared_ptr<const attention::Code> code;
  KernelTraits traits;
  uint64_t signature = 0;  // of traits
  // Built in, in the spec's mask or as its variant: what they read of their tensors is known, and run checks it.
  Mask custom_mask = Mask::none;   // custom, custom_packed
  const char* per_head = nullptr;  // a tensor of one number a query head, "slopes" or "sinks"
  bool check_masks = false;        // WEFT_CHECK=1 when it was built
};

}  // namespace weft
