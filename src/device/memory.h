// Memory of each kind of device, for workspaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/device.h"

namespace weft::device {

inline constexpr size_t kHugePage = size_t{2} << 20;  // of the system, as far as it gives any

struct Memory {
  // Throws where there is no such device; `name` is what asks for it.
  void (*require)(Device device, std::string_view name);
  // Zero bytes, 64-byte aligned; null where there are not so many.
  void* (*allocate)(Device device, size_t bytes);
  void (*release)(Device device, void* data, size_t bytes);  // throws nothing
  // Within the device, behind all that its default stream was given; done when it returns.
  void (*copy)(Device device, void* to, const void* from, size_t bytes);
  // Bytes that this process may still take; null: nobody knows.
  uint64_t (*available)(Device device) = nullptr;
  // Has the system back bytes of an allocation now instead of at their first use; they stay as they are. False: it does
  // not. Null: all are backed.
  bool (*prefault)(void* data, size_t bytes) = nullptr;
};

// Takes the place of what was there; it stays.
void add_memory(DeviceKind kind, const Memory& memory);

// Bytes that this process may still take of the device's memory, where that is known. Throws where there is no such
// device.
std::optional<uint64_t> available_memory(Device device);

// Memory's prefault, of bytes of a workspace; false where all are backed, too.
bool prefault(Device device, void* data, size_t bytes);

// Throws what require does, and Error(device_failed).
void copy(Device device, void* to, const void* from, size_t bytes);

extern const Memory cpu_memory;  // of device/cpu

}  // namespace weft::device
