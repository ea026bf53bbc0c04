// Bytes of the host on their way to a card, without waiting: they are copied into a slot of pinned memory, and go from
// there in the order of the stream. A slot is used again once the copy out of it has ended.
//
//   UploadRing& ring = UploadRing::of(card);
//   ring.write(to, {{from, bytes}}, stream);     // `from` may change at once
//
// Thread-safe.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "device/cuda/stream.h"

namespace weft::cuda {

class UploadRing {
 public:
  // The card's; it lives as long as the process.
  static UploadRing& of(Card& card);
  // The pieces one behind another, by one copy. What is returned was recorded behind it, and is recorded anew only once
  // it has ended. Throws Error(invalid_argument) while the stream is captured, as a graph would copy what the slot
  // holds later, and Error(out_of_memory).
  const Event& write(void* to, std::span<const Bytes> pieces, api::Stream stream);

 private:
  explicit UploadRing(Card& card) : card_(card), slots_(kSlots) {}
  static constexpr size_t kSlots = 8, kLeastBytes = 64 << 10;
  struct Slot {
    void* data = nullptr;
    size_t bytes = 0;
    Event read = {};
  };
  Slot& take(size_t bytes);

  Card& card_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace weft::cuda
