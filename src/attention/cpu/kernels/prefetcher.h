// Fetches memory into the caches while something else is worked on.
#pragma once

#include "attention/cpu/kernels/core.h"
#include "tile/cpu/vec.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

using namespace weft::tile::WEFT_ISA_NAME;

// What unread tokens point to.
extern const char kZeros[kMaxHeadDim * 4];

// Memory to fetch while something else is worked on, a few lines at a time. Evenly: a core has few lines under way at
// once, and those that it works on need some of them. It holds the regions of two tiles, and goes from each to the
// next.
class Prefetcher {
 public:
  // `bytes` of each of n rows, for each of some heads.
  struct Region {
    const char* const* rows;
    int n, bytes, heads;
    long long head_stride;
    int lines() const { return n * bytes * heads / 64; }
  };

  // The two regions of a tile, in the order in which they are read, in place of those of the tile before the last one.
  void add(const Region& first, const Region& second);

  // Whether nothing is left.
  bool is_done() const { return step_ == 0; }

  void fetch(int lines) {
    for (int i = 0; i < lines; ++i) prefetch(at_ + 64 * i);
    at_ += step_ * lines;
    if (at_ >= end_) next_run();
  }

  void fetch_each(int lines) {
    for (int i = 0; i < lines; ++i) fetch(1);
  }

  // Where the next n times so many lines lie: for loops whose registers a call would spill.
  void take(int n, int lines, const char** at) {
    for (int i = 0; i < n; ++i) {
      at[i] = at_;
      at_ += step_ * lines;
      if (at_ >= end_) next_run();
    }
  }

  // From a row that is read now to the one that is read in its place next, which comes into the first-level cache: so
  // many rows on in their list, and so many bytes from there. Decode takes 1.33 times as long without.
  struct Next {
    int rows;
    long long bytes;
  };
  Next next = {};
  // From here on, a line that is read stands for 64 >> widening stored bytes, the rest being what was made of them:
  // else fetching would run ahead of what is worked on (decode of fp16 keys with a hook: 1.17 times as long).
  void set_widening(int widening) {
    line_ = 64 >> widening;
    if (step_ > 0) step_ = line_;
  }

  // So many lines are to be fetched beside so many tiles of registers of a packed product. Twelve rows over 4,096
  // tokens take 1.28 times as long without.
  void spread(int lines, int register_tiles) { lines_a_tile_ = lines == 0 ? 0 : lines / register_tiles + 1; }
  int lines_a_tile() const { return lines_a_tile_; }

 private:
  void next_run();
  void begin(int region);
  const char *at_ = kZeros, *end_ = kZeros + 1;  // what is left of a run of memory
  long long line_ = 64, step_ = 0;               // to the next line; 0: nothing is left
  int lines_a_tile_ = 0;
  int region_ = 0, num_regions_ = 0, head_ = 0, row_ = 0;
  Region regions_[4] = {};
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
