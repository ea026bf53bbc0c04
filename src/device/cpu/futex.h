// Waiting for a 32-bit word to change: spinning first, sleeping then. Bit 0 of such a word, kSleepers, says that
// somebody sleeps on it, so that whoever changes the word makes a system call only when it must.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace weft {

inline constexpr uint32_t kSleepers = 1;

// How long one waiter spins before it sleeps. A spin that ends with what was waited for has paid; one that does not
// has only kept a CPU from a neighbour, or from the very worker that is waited for. So the budget halves with every
// spin in vain and doubles with every one that paid; now and then a full spin tries whether the neighbour is gone.
class SpinBudget {
 public:
  static constexpr int64_t kMinNs = 2'000;
  static constexpr int64_t kMaxNs = 50'000;
  static constexpr int kProbe = 64;

  explicit SpinBudget(int64_t max_ns = kMaxNs) : max_ns_(max_ns), ns_(max_ns) {}
  int64_t next_ns() { return ++waits_ % kProbe == 0 ? max_ns_ : ns_; }
  void paid() { ns_ = std::min(max_ns_, 2 * ns_); }
  void in_vain() { ns_ = std::max(std::min(kMinNs, max_ns_), ns_ / 2); }

 private:
  int64_t max_ns_, ns_;
  int waits_ = 0;
};

inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once done(word) holds; everything written before the word was changed is then visible.
template <class Done>
void wait_until(std::atomic<uint32_t>& word, SpinBudget& budget, Done done) {
  constexpr int kChecksPerClock = 32;
  auto spin = [&] {
    for (int i = 0; i < kChecksPerClock; ++i) {
      if (done(word.load(std::memory_order_acquire))) return true;
      relax_cpu();
    }
    return false;
  };
  if (spin()) return;
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::nanoseconds(budget.next_ns());
  do {
    if (spin()) return budget.paid();
  } while (Clock::now() < end);
  budget.in_vain();
  for (uint32_t value = word.load(std::memory_order_acquire); !done(value);
       value = word.load(std::memory_order_acquire)) {
    if (!(value & kSleepers) && !word.compare_exchange_weak(value, value | kSleepers, std::memory_order_acq_rel))
      continue;
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value | kSleepers, nullptr, nullptr, 0);
  }
}

// After the word was changed: wakes those who slept on its old value.
inline void wake_sleepers(std::atomic<uint32_t>& word, uint32_t old_value) {
  if (old_value & kSleepers) syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace weft
