// What a card needs to know of a step: ids, places in the cache, angles. One copy, to the same addresses every step, as
// captured work reads them.
#pragma once

#include "decode/step.h"
#include "decode/step_attention.h"
#include "device/cuda/memory.h"
#include "ops/cuda/kernels/args.h"

namespace weft::decode {

class StepUpload {
 public:
  // `kinds` of layers with angles for at most `most_pairs` pairs of a row.
  StepUpload(cuda::Card& card, size_t kinds, int64_t most_pairs)
      : card_(card), kinds_(kinds), most_pairs_(most_pairs) {}

  // In the order of the stream, which has ended the copy before. Memory grows to what the largest step needs.
  void write(const Step& step, const StepAttention& attention, cuda::api::Stream stream);

  const int* tokens() const { return at<int>(0); }
  const ops::CachePlace* places() const { return at<ops::CachePlace>(places_); }
  struct Angles {
    const float *cos, *sin;  // [rows, pairs]
  };
  Angles angles(size_t kind) const {
    return {at<float>(angles_ + 2 * kind * table_), at<float>(angles_ + (2 * kind + 1) * table_)};
  }

 private:
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(on_card_.data()) + offset);
  }
  void make_room(int64_t rows);

  cuda::Card& card_;
  size_t kinds_;
  int64_t most_pairs_, rows_ = 0;               // that there is room for
  size_t places_ = 0, angles_ = 0, table_ = 0;  // offsets, and the bytes of a table of cosines
  Workspace on_host_, on_card_;
};

// Where the rows of a step go: the last tokens of each request.
void find_places(const Step& step, ops::CachePlace* places);

}  // namespace weft::decode
