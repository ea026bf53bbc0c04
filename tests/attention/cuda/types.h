// The types that kernels for an architecture multiply a spec in, fp32 first.
#pragma once

#include <string>
#include <vector>

#include "attention/cuda/family.h"

namespace weft::testing {

inline std::vector<DType> types_on(const AttentionSpec& spec, const std::string& architecture) {
  std::vector<DType> types{DType::fp32};
  if (const auto type = attention::cuda::product_type(spec, attention::cuda::find_architecture(architecture)))
    types.push_back(*type);
  return types;
}

}  // namespace weft::testing
