#include "attention/cpu/kernels/ahead.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

alignas(64) const char kZeros[kMaxHeadDim * 4] = {};

void Ahead::add(const Part& first, const Part& second) {
  parts_[num_parts_ % 4] = first;
  parts_[num_parts_ % 4 + 1] = second;
  num_parts_ += 2;
  const int oldest = num_parts_ > 4 ? num_parts_ - 4 : 0;
  if (part_ < oldest || step_ == 0) begin(part_ > oldest ? part_ : oldest);
}

void Ahead::begin(int part) {
  part_ = part;
  head_ = row_ = 0;
  end_ = at_;
  next_run();
}

// To the next run: rows that follow each other.
void Ahead::next_run() {
  long long over = (at_ - end_) / 64 * 64;  // of these lines were others asked for
  for (; part_ < num_parts_; ++part_, head_ = 0)
    for (const Part& part = parts_[part_ % 4]; head_ < part.heads; ++head_, row_ = 0)
      for (int row = row_; row < part.n; row_ = row) {
        const long long offset = head_ * part.head_stride;
        const char* at = part.rows[row++] + offset;
        const char* end = at + part.bytes;
        for (; row < part.n && part.rows[row] + offset == end; ++row) end += part.bytes;
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
