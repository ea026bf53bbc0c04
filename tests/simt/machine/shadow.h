// What is remembered of every byte: who wrote it last, and who has read it since.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "tests/simt/machine/clock.h"

namespace weft::simt {

enum class Access : uint8_t { read, write, atomic };

// Bytes that a copy is to write, or has begun to: nothing else may touch them. `write` of the byte says whose it is.
enum class Flight : uint8_t { none, cp_async, bulk_copy, bulk_store };

struct ShadowByte {
  Event write;
  uint64_t readers = 0;  // bit s: slot s of the readers has one since the last write
  Flight flight = Flight::none;
  bool is_mbarrier = false;
  int8_t swizzle = 0;  // abi::Swizzle of the box that brought it, plus 1; 0: none brought it
};

static_assert(std::is_trivially_copyable_v<ShadowByte>, "zero bytes are one that nothing has happened to");

// n elements that are zero, and take no memory until they are touched: most are of red zones and gaps.
template <class T>
class ZeroArray {
 public:
  ZeroArray() = default;
  explicit ZeroArray(size_t n) : data_(map(n), Unmap{n}) {}
  T& operator[](size_t i) { return data_[i]; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  struct Unmap {
    size_t n = 0;
    void operator()(T* data) const { munmap(data, n * sizeof(T)); }
  };
  static T* map(size_t n) {
    void* data =
        mmap(nullptr, n * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(data);
  }
  std::unique_ptr<T[], Unmap> data_;
};

// Shadow of the bytes [begin, begin + size). Of those who read a byte the last of each slot is kept: a warp, or an
// mbarrier on which copies complete. More than 64 share slots, and of two that are unordered the first one is kept.
class Shadow {
 public:
  static constexpr size_t kSlots = 64;

  Shadow() = default;
  Shadow(const char* begin, size_t size) : begin_(begin), size_(size), bytes_(size) {}
  bool contains(const char* p) const { return p >= begin_ && p < begin_ + size_; }
  ShadowByte& operator[](const char* p) { return bytes_[static_cast<size_t>(p - begin_)]; }

  // One more reader, who is at `now`.
  void read(const char* p, size_t slot, const Event& event, const Clock& now) {
    ZeroArray<Event>& readers = readers_[slot %= kSlots];
    if (!readers) readers = ZeroArray<Event>(size_);
    Event& last = readers[static_cast<size_t>(p - begin_)];
    uint64_t& mask = (*this)[p].readers;
    const uint64_t bit = uint64_t{1} << slot;
    if ((mask & bit) != 0 && last.who / 32 != event.who / 32 && !last.is_before(now)) return;
    mask |= bit;
    last = event;
  }
  // One of those that `readers` of the byte has bits of.
  const Event& reader(const char* p, size_t slot) { return readers_[slot][static_cast<size_t>(p - begin_)]; }

 private:
  const char* begin_ = nullptr;
  size_t size_ = 0;
  ZeroArray<ShadowByte> bytes_;
  ZeroArray<Event> readers_[kSlots];
};

}  // namespace weft::simt
