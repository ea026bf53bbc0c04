#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/device_checks.h"
#include "weft/device.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
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

}  // namespace

Workspace::Workspace(Device device, size_t bytes) : bytes_(bytes), device_(device) {
  check_is_cpu("workspace", device);
  if (bytes == 0) return;
  if (bytes >= kHugePage) {
    check(bytes <= SIZE_MAX / 2, ErrorCode::out_of_memory, "a workspace of {} bytes is more than memory can be", bytes);
    mapped_bytes_ = (bytes + kPage - 1) / kPage * kPage;
    data_ = map_huge(mapped_bytes_);
  } else if (posix_memalign(&data_, 64, bytes) == 0) {
    std::memset(data_, 0, bytes);
  } else {
    data_ = nullptr;
  }
  check(data_ != nullptr, ErrorCode::out_of_memory,
        "a workspace of {} bytes cannot be had; ask for less, or free or add memory", bytes);
}

Workspace::~Workspace() {
  if (mapped_bytes_ > 0) {
    munmap(data_, mapped_bytes_);
  } else {
    std::free(data_);
  }
}

Workspace::Workspace(Workspace&& other) noexcept { *this = std::move(other); }

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace weft
