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

// How long the waiting workers of a team spin before they sleep. A spin that ends with what was waited for has paid;
// one that does not has only kept a CPU from a neighbour, or from the very worker that is waited for. So the team is
// patient as long as two of three long spins pay. Impatient, it sleeps soon; but then every wait lasts as long as
// waking does, and looks as if spinning were in vain: so after a while patience is tried again.
class SpinPolicy {
 public:
  static constexpr int64_t kPatientNs = 50'000;
  static constexpr int64_t kImpatientNs = 2'000;

  // crowded: there are more workers than CPUs, and patience never pays.
  SpinPolicy(int num_workers, bool crowded)
      : most_(16 * num_workers),
        least_(crowded ? INT_MIN / 2 : -32 * num_workers),
        patience_(crowded ? least_ : most_) {}

  bool patient() const { return patience_.load(std::memory_order_relaxed) > 0; }
  // Of a long spin. Workers may overwrite each other's count: it is a tendency.
  void paid() { set(std::min(get() + 1, most_)); }
  void in_vain(bool was_patient) {
    const int patience = get();
    if (was_patient) {
      set(patience > 2 ? patience - 2 : least_);
    } else {
      set(patience == -1 ? kTrial : patience + 1);
    }
  }

 private:
  static constexpr int kTrial = 6;  // three spins in vain end it
  int get() const { return patience_.load(std::memory_order_relaxed); }
  void set(int patience) { patience_.store(patience, std::memory_order_relaxed); }

  const int most_, least_;
  std::atomic<int> patience_;  // above 0: patient; below: how many more impatient waits in vain until a trial
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
void wait_until(std::atomic<uint32_t>& word, SpinPolicy& policy, Done done) {
  auto spin = [&] {
    constexpr int kChecksPerClock = 32;
    for (int i = 0; i < kChecksPerClock; ++i) {
      if (done(word.load(std::memory_order_acquire))) return true;
      relax_cpu();
    }
    return false;
  };
  if (spin()) return;
  using Clock = std::chrono::steady_clock;
  const bool patient = policy.patient();
  const auto end = Clock::now() + std::chrono::nanoseconds(patient ? SpinPolicy::kPatientNs : SpinPolicy::kImpatientNs);
  do {
    if (spin()) {
      if (patient) policy.paid();
      return;
    }
  } while (Clock::now() < end);
  policy.in_vain(patient);
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
