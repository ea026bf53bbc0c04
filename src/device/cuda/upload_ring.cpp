#include "device/cuda/upload_ring.h"

#include <algorithm>
#include <bit>
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

// The slot whose turn it is, with room for so many bytes.
UploadRing::Slot& UploadRing::take(size_t bytes) {
  Slot& slot = slots_[next_++ % kSlots];
  if (slot.read)
    wait(slot.read);
  else
    slot.read = make_event(card_);
  if (slot.bytes >= bytes) return slot;
  const Device host = Device::cuda_host(card_.index());
  if (slot.data != nullptr) release_pinned(host, slot.data, slot.bytes);
  slot.bytes = std::bit_ceil(std::max(bytes, kLeastBytes));
  slot.data = allocate_pinned(host, slot.bytes);
  if (slot.data == nullptr) slot.bytes = 0;
  check(slot.data != nullptr, ErrorCode::out_of_memory, "upload: {} bytes of pinned memory cannot be had", bytes);
  return slot;
}

const Event& UploadRing::write(void* to, std::span<const Bytes> pieces, api::Stream stream) {
  const Current current(card_);
  check(stream == nullptr || !is_capturing(card_, stream), ErrorCode::invalid_argument,
        "upload: its stream is being captured; upload before the capture, and before each launch of the graph");
  size_t bytes = 0;
  for (const Bytes& piece : pieces) bytes += static_cast<size_t>(piece.size);
  const std::lock_guard lock(mutex_);
  Slot& slot = take(bytes);
  copy(pieces, slot.data);
  if (bytes > 0) copy_to_card(card_, to, slot.data, bytes, stream);
  record(slot.read, stream);
  return slot.read;
}

}  // namespace weft::cuda
