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
  // Of a built-in variant, which is known to read one number a query head: "slopes" or "sinks". Run checks that.
  const char* per_head = nullptr;
  bool check_masks = false;  // WEFT_CHECK=1 when it was built
};

}  // namespace weft
