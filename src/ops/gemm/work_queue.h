// Items dealt to the workers of a job, and taken over from whoever is slow: the cores of a machine with neighbours are
// not equally fast at every moment, and a share that is fixed makes all of them wait for the slowest.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace weft::gemm {

class WorkQueue {
 public:
  struct Run {
    int64_t begin = 0, end = 0;
  };

  // Worker w begins with items [border(w), border(w + 1)), fewer than 2^32 in all. By one thread, before the job.
  template <class Border>
  void deal(int workers, const Border& border) {
    if (workers > room_) {
      lines_ = std::make_unique<Line[]>(static_cast<size_t>(workers));
      room_ = workers;
    }
    workers_ = workers;
    for (int w = 0; w < workers; ++w) lines_[w].left.store(pack({border(w), border(w + 1)}), std::memory_order_relaxed);
  }

  // What `worker` does next: the front of its own share, a quarter at a time so that the others find something at its
  // end, and then the back half of the longest share. False where nothing is left. Each item is given once.
  bool take(int worker, Run& run) {
    for (;;) {
      if (take_from(lines_[worker].left, run, [](Run& left) {
            const int64_t count = std::max<int64_t>(1, (left.end - left.begin) / 4);
            return Run{left.begin, std::exchange(left.begin, left.begin + count) + count};
          }))
        return true;
      int longest = -1;
      int64_t most = 0;
      for (int w = 0; w < workers_; ++w) {
        const Run left = unpack(lines_[w].left.load(std::memory_order_relaxed));
        if (left.end - left.begin > most) most = left.end - left.begin, longest = w;
      }
      if (longest < 0) return false;
      if (take_from(lines_[longest].left, run, [](Run& left) {
            const int64_t count = (left.end - left.begin + 1) / 2;
            return Run{left.end - count, std::exchange(left.end, left.end - count)};
          }))
        return true;
    }
  }

 private:
  struct alignas(128) Line {
    std::atomic<uint64_t> left{0};
  };
  static uint64_t pack(const Run& run) {
    return static_cast<uint64_t>(run.begin) << 32 | static_cast<uint64_t>(run.end);
  }
  static Run unpack(uint64_t word) {
    return {static_cast<int64_t>(word >> 32), static_cast<int64_t>(word & 0xffffffffu)};
  }
  // Nothing but the ranges themselves is handed over, so no order is needed.
  template <class Cut>
  static bool take_from(std::atomic<uint64_t>& word, Run& run, const Cut& cut) {
    uint64_t old = word.load(std::memory_order_relaxed);
    for (;;) {
      Run left = unpack(old);
      if (left.begin >= left.end) return false;
      run = cut(left);
      if (word.compare_exchange_weak(old, pack(left), std::memory_order_relaxed)) return true;
    }
  }

  std::unique_ptr<Line[]> lines_;
  int room_ = 0, workers_ = 0;
};

}  // namespace weft::gemm
