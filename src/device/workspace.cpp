#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/memory.h"
#include "weft/device.h"

namespace weft {
namespace {

void copy_on_card(Device device, void* to, const void* from, size_t bytes) {
  cuda::Card& card = cuda::Card::at(device.index);
  cuda::copy_on_card(card, to, from, bytes, nullptr);
  cuda::synchronize(card, nullptr);
}
void copy_on_host(Device, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

// Pinned memory may be asked for where a card is.
constexpr device::Memory kCuda = {cuda::require_card, cuda::allocate, cuda::release, copy_on_card, cuda::available};
constexpr device::Memory kCudaHost = {
    [](Device device, std::string_view name) { cuda::require_card(Device::cuda(device.index), name); },
    cuda::allocate_pinned, cuda::release_pinned, copy_on_host};

std::atomic<const device::Memory*>& memory_of(DeviceKind kind) {
  static std::atomic<const device::Memory*> all[] = {&device::cpu_memory, &kCuda, &kCudaHost};
  return all[static_cast<int>(kind)];
}

}  // namespace

void device::add_memory(DeviceKind kind, const Memory& memory) { memory_of(kind) = &memory; }

std::optional<uint64_t> device::available_memory(Device device) {
  const Memory& memory = *memory_of(device.kind);
  return memory.available != nullptr ? std::optional(memory.available(device)) : std::nullopt;
}

bool device::prefault(Device device, void* data, size_t bytes) {
  const Memory& memory = *memory_of(device.kind);
  return memory.prefault != nullptr && memory.prefault(data, bytes);
}

void device::copy(Device device, void* to, const void* from, size_t bytes) {
  const Memory& memory = *memory_of(device.kind);
  memory.require(device, "copy");
  memory.copy(device, to, from, bytes);
}

Workspace::Workspace(Device device, size_t bytes) : device_(device) {
  const device::Memory& memory = *memory_of(device.kind);
  memory.require(device, "workspace");
  if (bytes == 0) return;
  data_ = memory.allocate(device, bytes);
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
  std::swap(host_copy_, other.host_copy_);
  return *this;
}

}  // namespace weft
