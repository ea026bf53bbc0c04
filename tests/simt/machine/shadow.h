// What is remembered of every byte: who wrote it last, and two of those who read it since.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace weft::simt {

enum class Access : uint8_t { read, write, atomic };

// Vector clocks: entry t says how much of thread t's past is seen. A thread counts on whenever it tells others.
using Clock = std::vector<uint32_t>;
inline void join(Clock& to, const Clock& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

struct Event {
  uint32_t clock = 0;  // 0: never
  uint16_t thread = 0;
  bool is_atomic = false;
  const void* pc = nullptr;
  bool is_before(const Clock& now) const { return clock <= now[thread]; }
};

struct ShadowByte {
  Event write, reads[2];
  bool in_flight = false;  // a cp.async has it as its destination; `write` says whose
};

static_assert(std::is_trivially_copyable_v<ShadowByte>, "zero bytes are one that nothing has happened to");

struct Unmap {
  size_t size = 0;
  void operator()(ShadowByte* bytes) const { munmap(bytes, size * sizeof(ShadowByte)); }
};

// Shadow of the bytes [begin, begin + size).
class Shadow {
 public:
  Shadow() = default;
  Shadow(const char* begin, size_t size) : begin_(begin), size_(size), bytes_(map(size), Unmap{size}) {}
  bool contains(const char* p) const { return p >= begin_ && p < begin_ + size_; }
  ShadowByte& operator[](const char* p) { return bytes_[static_cast<size_t>(p - begin_)]; }

 private:
  static ShadowByte* map(size_t size) {
    void* bytes = mmap(nullptr, size * sizeof(ShadowByte), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) throw std::bad_alloc();
    return static_cast<ShadowByte*>(bytes);
  }
  const char* begin_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<ShadowByte[], Unmap> bytes_;  // zero, and no memory until it is touched: most is red zones and gaps
};

}  // namespace weft::simt
