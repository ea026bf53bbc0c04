// Everything runs on the one CPU device so far: who is given a device asks here.
#pragma once

#include <string_view>

#include "weft/tensor.h"

namespace weft {

// Throws Error(invalid_device) unless what is given lies there. `op`, where one is given, stands before the name.
void check_on_cpu(std::string_view op, std::string_view name, Device device);
// Throws Error(unsupported) unless what is asked for is it.
void check_is_cpu(std::string_view name, Device device);

}  // namespace weft
