#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "weft/device.h"

namespace weft {

Workspace::Workspace(Device device, size_t bytes) : bytes_(bytes), device_(device) {
  check(device == Device::cpu(), ErrorCode::unsupported, "workspace on {}: only cpu is built in", to_string(device));
  mapped_bytes_ = (bytes + 63) / 64 * 64;
  if (mapped_bytes_ == 0) return;
  data_ = std::aligned_alloc(64, mapped_bytes_);
  check(data_ != nullptr, ErrorCode::out_of_memory, "a workspace of {} bytes", bytes);
  std::memset(data_, 0, mapped_bytes_);
}

Workspace::~Workspace() { std::free(data_); }

Workspace::Workspace(Workspace&& other) noexcept { *this = std::move(other); }

Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(device_, other.device_);
  return *this;
}

}  // namespace weft
