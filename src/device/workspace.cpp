#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/device_checks.h"
#include "device/memory.h"
#include "weft/device.h"

namespace weft {
namespace {

std::atomic<const device::Memory*>& memory_of(DeviceKind kind) {
  static std::atomic<const device::Memory*> all[2] = {&device::cpu_memory, nullptr};
  return all[static_cast<int>(kind)];
}

}  // namespace

void device::add_memory(DeviceKind kind, const Memory& memory) { memory_of(kind) = &memory; }

Workspace::Workspace(Device device, size_t bytes) : device_(device) {
  const device::Memory* memory = memory_of(device.kind);
  if (memory == nullptr || device.index < 0 || device.index >= memory->num_devices) refuse_device("workspace", device);
  if (bytes == 0) return;
  data_ = memory->allocate(device, bytes);
  check(data_ != nullptr, ErrorCode::out_of_memory,
        "a workspace of {} bytes cannot be had; ask for less, or free or add memory", bytes);
  bytes_ = bytes;
}

Workspace::~Workspace() {
  if (data_ != nullptr) memory_of(device_.kind).load()->release(device_, data_, bytes_);
}

Workspace::Workspace(Workspace&& other) noexcept { *this = std::move(other); }

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace weft
