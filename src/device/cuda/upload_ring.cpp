#include "device/cuda/upload_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>

#include "base/check.h"
#include "device/cuda/graph.h"
#include "device/cuda/memory.h"

namespace weft::cuda {

UploadRing& UploadRing::of(Card& card) {
  static std::mutex mutex;
  static auto* const rings = new std::map<int, std::unique_ptr<UploadRing>>;  // outlives every static workspace
  const std::lock_guard lock(mutex);
  std::unique_ptr<UploadRing>& ring = (*rings)[card.index()];
  if (ring == nullptr) ring.reset(new UploadRing(card));
  return *ring;
}

void UploadRing::write(void* to, const void* from, size_t bytes, api::Stream stream) {
  if (bytes == 0) return;
  check(stream == nullptr || !is_capturing(card_, stream), ErrorCode::invalid_argument,
        "upload: its stream is being captured; upload before the capture, and before each launch of the graph");
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[next_++ % kSlots];
  if (slot.read)
    wait(slot.read);
  else
    slot.read = make_event(card_);
  if (slot.bytes < bytes) {
    const Device host = Device::cuda_host(card_.index());
    if (slot.data != nullptr) release_pinned(host, slot.data, slot.bytes);
    slot.bytes = std::bit_ceil(std::max(bytes, kLeastBytes));
    slot.data = allocate_pinned(host, slot.bytes);
    if (slot.data == nullptr) slot.bytes = 0;
    check(slot.data != nullptr, ErrorCode::out_of_memory, "upload: {} bytes of pinned memory cannot be had", bytes);
  }
  std::memcpy(slot.data, from, bytes);
  copy_to_card(card_, to, slot.data, bytes, stream);
  record(slot.read, stream);
}

}  // namespace weft::cuda
