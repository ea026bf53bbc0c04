// Memory of each kind of device, for workspaces.
#pragma once

#include <cstddef>

#include "weft/device.h"

namespace weft::device {

struct Memory {
  // Zero bytes, 64-byte aligned; null where there are not so many.
  void* (*allocate)(Device device, size_t bytes);
  void (*release)(Device device, void* data, size_t bytes);
  int num_devices;
};
// Takes the place of what was there; it stays.
void add_memory(DeviceKind kind, const Memory& memory);

extern const Memory cpu_memory;  // of device/cpu: the one that is always there

}  // namespace weft::device
