// The option --device.
#pragma once

#include <string>

#include "weft/tensor.h"

namespace weft::cli {

// "cpu", "cuda" (the first card) or "cuda:N". Throws Error(invalid_argument).
Device device_of(const std::string& value, const std::string& option = "--device");
// The same, of a device that is there. Throws Error(unsupported | invalid_device) in the words of this program.
Device require_device(const std::string& value, const std::string& option = "--device");

}  // namespace weft::cli
