#include "device/cuda/memory.h"

#include <cstring>

#include "base/check.h"

namespace weft::cuda {
namespace {

api::Pointer pointer(const void* p) { return reinterpret_cast<api::Pointer>(p); }

// For destructors, which throw nothing and leave to a lost card what is its own.
void release_on(Device device, size_t Card::Ledger::*kind, size_t bytes, void (*free)(const Driver& driver, void* data),
                void* data) noexcept {
  try {
    Card& card = Card::at(device.index);
    const Current current(card);
    free(card.driver(), data);
    card.count(kind, bytes, false);
  } catch (const std::exception&) {
  }
}

}  // namespace

void* allocate(Device device, size_t bytes) {
  Card& card = Card::at(device.index);
  const Current current(card);
  api::Pointer data = 0;
  const api::Result result = card.driver().mem_alloc(&data, bytes);
  if (result == api::kOutOfMemory) return nullptr;
  card.check(result, "allocating memory");
  card.count(&Card::Ledger::device_bytes, bytes, true);
  fill_zero(card, reinterpret_cast<void*>(data), bytes, nullptr);
  card.check(card.driver().stream_synchronize(nullptr), "clearing memory");
  return reinterpret_cast<void*>(data);
}

void release(Device device, void* data, size_t bytes) {
  // It waits for what still uses the memory.
  const auto free = [](const Driver& driver, void* p) { driver.mem_free(pointer(p)); };
  release_on(device, &Card::Ledger::device_bytes, bytes, free, data);
}

uint64_t available(Device device) {
  Card& card = Card::at(device.index);
  const Current current(card);
  size_t free = 0, total = 0;
  card.check(card.driver().mem_get_info(&free, &total), "asking for its free memory");
  return free;
}

void* allocate_pinned(Device device, size_t bytes) {
  Card& card = Card::at(device.index);
  const Current current(card);
  void* data = nullptr;
  const api::Result result = card.driver().mem_host_alloc(&data, bytes, api::kHostAllocPortable);
  if (result == api::kOutOfMemory) return nullptr;
  card.check(result, "allocating pinned memory");
  card.count(&Card::Ledger::pinned_bytes, bytes, true);
  std::memset(data, 0, bytes);
  return data;
}

void release_pinned(Device device, void* data, size_t bytes) {
  const auto free = [](const Driver& driver, void* p) { driver.mem_free_host(p); };
  release_on(device, &Card::Ledger::pinned_bytes, bytes, free, data);
}

void copy_to_card(Card& card, void* to, const void* from, size_t bytes, api::Stream stream) {
  const Current current(card);
  card.check(card.driver().memcpy_htod_async(pointer(to), from, bytes, stream), "copying to it");
}
void copy_to_host(Card& card, void* to, const void* from, size_t bytes, api::Stream stream) {
  const Current current(card);
  card.check(card.driver().memcpy_dtoh_async(to, pointer(from), bytes, stream), "copying from it");
}
void copy_on_card(Card& card, void* to, const void* from, size_t bytes, api::Stream stream) {
  const Current current(card);
  card.check(card.driver().memcpy_dtod_async(pointer(to), pointer(from), bytes, stream), "copying on it");
}
void fill_zero(Card& card, void* data, size_t bytes, api::Stream stream) {
  const Current current(card);
  card.check(card.driver().memset_d8_async(pointer(data), 0, bytes, stream), "clearing memory");
}

}  // namespace weft::cuda
