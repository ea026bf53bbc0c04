// Workspaces on the CPU: huge pages where they are large.
#include "device/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/device_checks.h"
#include "device/cpu/cgroup.h"

namespace weft {
namespace {

using device::kHugePage;

constexpr size_t kPage = 4096;

// Zero bytes from the system, on a huge page border. The last bytes, less than a huge page, lie in small ones.
void* map_huge(size_t bytes) {
  const size_t reserved = bytes + kHugePage;
  void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(start);
  const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > begin) munmap(start, aligned - begin);
  const uintptr_t end = aligned + bytes;
  if (begin + reserved > end) munmap(reinterpret_cast<void*>(end), begin + reserved - end);
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);  // refused where there are none: small pages then
  return reinterpret_cast<void*>(aligned);
}

size_t mapped(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void require(Device device, std::string_view name) {
  if (device != Device::cpu()) refuse_device(name, device);
}

void* allocate(Device, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  if (bytes >= kHugePage) return map_huge(mapped(bytes));
  void* data = nullptr;
  if (posix_memalign(&data, 64, bytes) != 0) return nullptr;
  std::memset(data, 0, bytes);
  return data;
}

void release(Device, void* data, size_t bytes) {
  if (bytes >= kHugePage)
    munmap(data, mapped(bytes));
  else
    std::free(data);
}

// Whole pages within the bytes. A kernel older than 5.14 refuses.
bool populate(void* data, size_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) / kPage * kPage;
  return begin >= end || madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0;
}

void copy_bytes(Device, void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace

const device::Memory device::cpu_memory = {
    require, allocate, release, copy_bytes, [](Device) { return weft::available_memory(); }, populate};

}  // namespace weft
