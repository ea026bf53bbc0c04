// Where tensors, streams and workspaces must lie.
#pragma once

#include <string_view>

#include "weft/tensor.h"

namespace weft {

// Throws Error(invalid_device) unless what is given lies on the device that is required; pinned memory is the CPU's
// too. `op`, where one is given, stands before the name.
void check_on(std::string_view op, std::string_view name, Device device, Device required);
inline void check_on_cpu(std::string_view op, std::string_view name, Device device) {
  check_on(op, name, device, Device::cpu());
}
// Throws Error(unsupported): there is nothing that runs on it.
[[noreturn]] void refuse_device(std::string_view name, Device device);

}  // namespace weft
