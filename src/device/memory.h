// Memory of each kind of device, for workspaces.
#pragma once

#include <cstddef>
#include <string_view>

#include "weft/device.h"

namespace weft::device {

struct Memory {
  // Throws where there is no such device; `name` is what asks for it.
  void (*require)(Device device, std::string_view name);
  // Zero bytes, 64-byte aligned; null where there are not so many.
  void* (*allocate)(Device device, size_t bytes);
  void (*release)(Device device, void* data, size_t bytes);  // throws nothing
};

// Takes the place of what was there; it stays.
void add_memory(DeviceKind kind, const Memory& memory);

extern const Memory cpu_memory;  // of device/cpu

}  // namespace weft::device
