// A machine that runs the text of CUDA kernels on the host, and watches every access.
//
//   simt::Memory memory;
//   std::span<float> y = memory.make<float>("y", 64);            // NaN, with red zones around
//   simt::run_in_all_orders(memory, {.ctas = 2, .threads = 128, .shared_bytes = 4096},
//                           [&] { weft_kernel({y.data()}); });
//
// The kernel is compiled by the host's compiler with -fsanitize=thread, whose calls go to this machine and to no
// runtime of the compiler's, with tests/simt/twins in the place of tile/cuda/ptx. Its threads are fibers of one host
// thread, and all its CTAs are alive at once. docs/cuda.md says what is found, and what is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::simt {

// What a kernel did wrong: who, what, where, and the other one of a race.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Global memory: what a launch may read and write, and nothing else.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(Memory&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(next_, other.next_);
    std::swap(buffers_, other.buffers_);
    return *this;
  }
  // Bytes are 0xff: NaN as a float of any size, -1 as an integer. 256-byte aligned.
  template <class T>
  std::span<T> make(std::string name, size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {static_cast<T*>(make_bytes(std::move(name), n * sizeof(T))), n};
  }
  template <class T>
  std::span<T> make(std::string name, const std::vector<T>& values) {
    const std::span<T> data = make<T>(std::move(name), values.size());
    std::memcpy(data.data(), values.data(), values.size() * sizeof(T));
    return data;
  }
  // No launch may touch the buffer any more; what lay behind all others is made again.
  void release(const void* begin);
  // The next buffer begins so many bytes behind the last one, or a little more: offsets beyond 32 bits cost no memory.
  void leave_gap(size_t bytes) { next_ += (bytes + 255) / 256 * 256; }
  struct Buffer {
    std::string name;
    char* begin;
    size_t bytes;
  };
  const std::vector<Buffer>& buffers() const { return buffers_; }
  // The bytes of all buffers, one behind the other.
  std::string content() const;
  void restore(const std::string& content);
  const char* begin() const { return begin_; }
  const char* end() const { return next_; }

 private:
  void* make_bytes(std::string name, size_t bytes);
  char* begin_;
  char* next_;
  std::vector<Buffer> buffers_;
};

// Who goes first among threads that can go.
enum class Order { up, down, random };

struct Launch {
  int ctas = 1, threads = 32;  // a multiple of 32
  size_t shared_bytes = 0;
  int cluster = 1;  // CTAs of one, that follow each other
  Order order = Order::up;
  uint64_t seed = 1;         // of Order::random
  bool cooperative = false;  // all CTAs are resident at once, or the launch is refused
  int resident_ctas = 0;     // CTAs that the card holds at once; 0: any number
  int registers = 0;         // of a thread as it begins; 0: as many as the CTA leaves it of a multiprocessor's
};

// What the kernel before the next launch has not done yet, where it is set: done when the first thread waits for it.
extern std::function<void()> previous_kernel;

// Runs `kernel`, a call of the kernel, in every thread of the launch. Throws Fault.
void run(Memory& memory, const Launch& launch, const std::function<void()>& kernel);
// Three times, from the same memory; throws Fault also where an order leaves other bytes behind than the first.
void run_in_all_orders(Memory& memory, Launch launch, const std::function<void()>& kernel);

}  // namespace weft::simt
