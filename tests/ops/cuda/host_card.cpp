#include "tests/ops/cuda/host_card.h"

#include "device/cuda/clamped.h"

namespace weft::testing {

HostCard::HostCard(bool in_all_orders, std::string_view architecture) {
  use_host_machine(architecture);
  host_multiprocessors = 1;
  host_in_all_orders = in_all_orders;
  driver().allocate = take_host_memory;  // what the product keeps on a card, it keeps
  clamped_flag = cuda::clamped_flag(cuda::Card::at(0));
  // Where a stream is being captured, the graph launches.
  is_capturing = [] { return driver().is_capturing; };
  defer_launch = [](std::function<void()> work) {
    if (driver().is_capturing) driver().captured.push_back(std::move(work));
    return driver().is_capturing;
  };
}

HostCard::~HostCard() {
  defer_launch = nullptr;
  is_capturing = nullptr;
  watch_launch = nullptr;
}

void* HostCard::place_bytes(const void* from, size_t bytes) {
  placed_.emplace_back(Device::cuda(0), bytes);
  if (bytes > 0) std::memcpy(placed_.back().data(), from, bytes);
  return placed_.back().data();
}

}  // namespace weft::testing
