// Queries beside keys of few bits. These are multiplied in fp16, whose exponents end early: each row of queries becomes
// fp16 times a power of two, exactly but for elements below 2^-28 of the row's largest one (2^-24 beside int4, whose
// odd pairs of keys are 16 times too large). Elements go where those of keys stand.
#pragma once

#include "attention/cuda/kernels/mma/shape.h"
#include "tile/cuda/reduce.h"

namespace weft::attention::cuda::mma {

// Where element i of a row of queries lies: of each 4 * kRun elements a lane has kRun neighbours.
template <class Shape>
WEFT_INLINE constexpr int place_of_element(int i) {
  constexpr int kRun = Shape::kRun;
  const int lane = i % (4 * kRun) / kRun, own = i % kRun;
  const int pair = Shape::Halves::kSplit ? own % (kRun / 2) : own / 2;
  const int high = Shape::Halves::kSplit ? own / (kRun / 2) : own % 2;
  return i / (4 * kRun) * (4 * kRun) + pair / 2 * 16 + pair % 2 * 8 + lane * 2 + high;
}

template <class Shape>
struct FewBitQueries {
  using Halves = typename Shape::Halves;
  static constexpr int kWords = Shape::kPadQk / 2, kOfLane = (kWords + 31) / 32;

  // What a row's scores begin with, and what their sums are multiplied by.
  WEFT_INLINE static float start(int row) { return Shape::shared().sum[0][row]; }
  WEFT_INLINE static float factor(int row) { return Shape::shared().maximum[0][row]; }

  // Once queries have come.
  WEFT_INLINE static void make(const Thread<Shape>& thread) {
    WEFT_NO_UNROLL
    for (int row = thread.warp; row < Shape::kRows; row += Shape::kWarps) make_row(thread, row);
    ptx::cta_sync();
  }

 private:
  // By a warp.
  WEFT_INLINE static void make_row(const Thread<Shape>& thread, int row) {
    const auto halves = [&](int i) { return reinterpret_cast<u16*>(Shape::queries().chunk(row, i / 8)) + i % 8; };
    float x[kOfLane][2], largest = 0;
    WEFT_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const int word = thread.lane + 32 * i;
      tile::unpack<typename Shape::T>(word < kWords ? *reinterpret_cast<const u32*>(halves(2 * word)) : 0u, x[i]);
      WEFT_UNROLL
      for (int e = 0; e < 2; ++e) largest = ptx::larger(largest, ptx::absolute(x[i][e]));
    }
    // A power of two that puts the largest between 2^14 and 2^15, and has a reciprocal; exponents of floats are biased.
    const u32 exponent = 268u - (ptx::to_bits(tile::lane_max(largest)) >> 23);
    const float power = ptx::from_bits((exponent < 253u ? exponent : 253u) << 23);
    ptx::warp_sync();  // all lanes have read
    float sum = 0;
    WEFT_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const int word = thread.lane + 32 * i;
      if (word >= kWords) continue;
      WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int place = place_of_element<Shape>(2 * word + e);
        const float scaled = x[i][e] * power;
        sum += scaled;
        // Of every 16 places the second 8 stand beside odd pairs.
        const float beside = Halves::kOfOddPairs > 0 && place / 8 % 2 == 1 ? scaled * kBesideOdd : scaled;
        *halves(place) = static_cast<u16>(ptx::to_fp16x2(beside, 0.f));
      }
    }
    sum = tile::lane_sum(sum);
    if (thread.lane != 0) return;
    Shape::shared().maximum[0][row] = tile::reciprocal_of_power(power);
    Shape::shared().sum[0][row] = sum * (-Halves::kOffset / Halves::kUnit);
  }
  static constexpr float kBesideOdd = 1.f / (1 << Halves::kOfOddPairs);
};

}  // namespace weft::attention::cuda::mma
