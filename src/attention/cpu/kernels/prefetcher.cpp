#include "attention/cpu/kernels/prefetcher.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

alignas(64) const char kZeros[kMaxHeadDim * 4] = {};

void Prefetcher::add(const Region& first, const Region& second) {
  regions_[num_regions_ % 4] = first;
  regions_[num_regions_ % 4 + 1] = second;
  num_regions_ += 2;
  const int oldest = num_regions_ > 4 ? num_regions_ - 4 : 0;
  if (region_ < oldest || step_ == 0) begin(region_ > oldest ? region_ : oldest);
}

void Prefetcher::begin(int region) {
  region_ = region;
  head_ = row_ = 0;
  end_ = at_;
  next_run();
}

// To the next run: rows that follow each other.
void Prefetcher::next_run() {
  long long over = (at_ - end_) / 64 * 64;  // of these lines were others asked for
  for (; region_ < num_regions_; ++region_, head_ = 0)
    for (const Region& region = regions_[region_ % 4]; head_ < region.heads; ++head_, row_ = 0)
      for (int row = row_; row < region.n; row_ = row) {
        const long long offset = head_ * region.head_stride;
        const char* at = region.rows[row++] + offset;
        const char* end = at + region.bytes;
        for (; row < region.n && region.rows[row] + offset == end; ++row) end += region.bytes;
        for (; over > 0 && at < end; over -= 64, at += 64) prefetch(at);
        if (at < end) {
          at_ = at;
          end_ = end;
          step_ = line_;
          row_ = row;
          return;
        }
      }
  at_ = kZeros;
  end_ = kZeros + 1;
  step_ = 0;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
