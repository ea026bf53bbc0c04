// The states of rows that are a warp's own, as fragments have them, to the output or to the item's partial.
#pragma once

#include "attention/cuda/kernels/mma/rows.h"
#include "attention/cuda/kernels/mma/states.h"

namespace weft::attention::cuda::mma {

// Outputs of 16 bits leave in 16 bytes of a lane: by way of shared memory, or, where registers have room for that, as
// lanes give each other what they have. Where a hook changes outputs these are written by others.
template <class Shape, class TileRows = Rows<Shape>>
class Store {
  using F = typename Shape::F;
  using Output = typename Shape::S::Output;
  static constexpr bool kIsHalf = sizeof(Output) == 2;
  static constexpr int kFragments = Shape::kFragments, kDimVo = Shape::kOwnVo, kRun = Shape::kRun;
  static constexpr int kRuns = (kDimVo + 4 * kRun - 1) / (4 * kRun);  // of those that leave

 public:
  // `staging`: the warp's own, once its queries are multiplied.
  WEFT_INLINE Store(const TileRows& rows, const Thread<Shape>& thread, const States<Shape>& states,
                    u8* staging = nullptr)
      : rows_(rows), thread_(thread), states_(states), staged_{staging} {}

  WEFT_INLINE void store() const {
    const Call& call = rows_.call;
    const PartialStates partial = partial_of(call, rows_.item);
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = thread_.row(m, half);
      const FusedRow& row = rows_.row(r);
      const float total = F::kSoftmax ? states_.rows[m].total(half) : 1.f;
      const float factor = total == 0.f ? 0.f : HeadScales<Shape>::of_value(rows_.item) / total;
      const tile::Lse lse =
          F::kSoftmax ? tile::lse_of(states_.rows[m].maximum[half], total, rows_.scale()) : tile::Lse{};
      const bool writes_lse = thread_.writes_lse() && thread_.lane % 4 == 0 && r < rows_.n;
      if (partial.data != nullptr) {
        const int token = (rows_.first + r) / call.group_size;
        if (writes_lse) partial.put_lse(call, token, row.head, lse);
        if (r < rows_.n) store_pairs(partial.o(call, token, row.head), m, half, factor);
      } else if constexpr (!F::OfVariant::output_transform) {
        if (writes_lse && call.lse != nullptr)
          write_lse<F>(call, rows_.p, {row.q_row, row.request, row.idx, row.pos, row.head}, lse.value);
        if constexpr (kIsHalf && Shape::kExchanges)
          store_halves(output_of(call, row.q_row, row.head), r < rows_.n, m, half, factor);
        else if constexpr (kIsHalf)
          stage(r - thread_.first_row(), m, half, factor);
        else if (r < rows_.n)
          store_pairs(reinterpret_cast<float*>(output_of(call, row.q_row, row.head)), m, half, factor);
      }
    }
    if constexpr (kIsHalf && !Shape::kExchanges && !F::OfVariant::output_transform)
      if (partial.data == nullptr) {
        ptx::warp_sync();
        store_staged();
      }
  }

 private:
  // This lane's elements of a row.
  WEFT_INLINE void store_pairs(float* to, int m, int half, float factor) const {
    // Once: the rest of an address is a constant of its instruction.
    to += thread_.first_column() + kRun * (thread_.lane % 4);
    WEFT_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      if (kDimVo % (4 * kRun) != 0 && 4 * kRun * run + kRun * (thread_.lane % 4) >= kDimVo) continue;
      WEFT_UNROLL
      for (int i = 0; i < kRun; ++i) to[4 * kRun * run + i] = states_.output(m, half, run, i) * factor;
    }
  }
  WEFT_INLINE bool are_aligned() const {
    const auto& o = rows_.call.o;
    return ((reinterpret_cast<u64>(o.data) | o.row_stride | o.head_stride) & 15) == 0;
  }
  // The same, of all lanes: the four of a row give each other what makes 16 bytes of each.
  WEFT_INLINE void store_halves(char* to, bool is_there, int m, int half, float factor) const {
    constexpr int kSharing = 4;
    static_assert(kRun == 2);
    const bool aligned = are_aligned();
    const int column = 8 * (thread_.lane % kSharing);
    to += 2 * (thread_.first_column() + column);
    WEFT_UNROLL
    for (int first = 0; first < kRuns; first += kSharing) {
      u32 words[kSharing];
      WEFT_UNROLL
      for (int s = 0; s < kSharing; ++s)
        words[s] = first + s < kRuns ? tile::pack<Output>(states_.output(m, half, first + s, 0) * factor,
                                                          states_.output(m, half, first + s, 1) * factor)
                                     : 0;
      tile::transpose_lanes(words, thread_.lane);
      if (is_there && (kRuns % kSharing == 0 || 8 * first + column < kDimVo))
        store_chunk(to + 16 * first, reinterpret_cast<const Bytes16&>(words), aligned);
    }
  }
  WEFT_INLINE static void store_chunk(char* to, const Bytes16& chunk, bool aligned) {
    if (aligned) {
      *reinterpret_cast<Bytes16*>(to) = chunk;
      return;
    }
    const u64 low = chunk.word[0] | static_cast<u64>(chunk.word[1]) << 32,
              high = chunk.word[2] | static_cast<u64>(chunk.word[3]) << 32;
    WEFT_NO_UNROLL
    for (int e = 0; e < 8; ++e) reinterpret_cast<u16*>(to)[e] = static_cast<u16>((e < 4 ? low : high) >> 16 * (e % 4));
  }
  // The same, to row r of `staged_`.
  WEFT_INLINE void stage(int r, int m, int half, float factor) const {
    if constexpr (kIsHalf) WEFT_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      const int at = run * kRun / 2 + kRun * (thread_.lane % 4) / 8;  // in 16 bytes
      u8* const to = staged_.chunk(r, at) + kRun * (thread_.lane % 4) % 8 * 2;
      WEFT_UNROLL
      for (int i = 0; i < kRun; i += 2)
        reinterpret_cast<u32*>(to)[i / 2] =
            tile::pack<Output>(states_.output(m, half, run, i) * factor, states_.output(m, half, run, i + 1) * factor);
    }
  }
  WEFT_INLINE void store_staged() const {
    const Call& call = rows_.call;
    constexpr int kChunks = kDimVo / 8;
    const bool aligned = are_aligned();
    // A lane finds where one row goes.
    constexpr int kOwnRows = 16 * kFragments, kOwnChunks = kOwnRows * kChunks;
    const FusedRow& own = rows_.row(thread_.first_row() + thread_.lane % kOwnRows);
    char* const output = output_of(call, own.q_row, own.head) + thread_.first_column() * 2;
    WEFT_UNROLL_4
    for (int first = 0; first < kOwnChunks; first += 32) {
      const int i = first + thread_.lane, r = i / kChunks;
      char* const to = ptx::shuffle(output, r % kOwnRows) + i % kChunks * 16;
      if (i >= kOwnChunks || thread_.first_row() + r >= rows_.n) continue;
      const u8* const from = staged_.chunk(r, i % kChunks);
      if (aligned) {
        *reinterpret_cast<Bytes16*>(to) = *reinterpret_cast<const Bytes16*>(from);
      } else {
        WEFT_NO_UNROLL
        for (int e = 0; e < 8; ++e) reinterpret_cast<u16*>(to)[e] = reinterpret_cast<const u16*>(from)[e];
      }
    }
  }

  const TileRows& rows_;
  const Thread<Shape>& thread_;
  const States<Shape>& states_;
  const tile::SharedTile<Shape::kOwnPadVo> staged_;  // the warp's rows
};

// Those states again, where they were stored: a value that is not finite makes of any finite output the same.
template <class Shape, class TileRows = Rows<Shape>>
class Stored {
  using Output = typename Shape::S::Output;

 public:
  WEFT_INLINE explicit Stored(const TileRows& rows) : rows_(rows) {}

  WEFT_INLINE void add(int r, int i, float v) const {
    const Call& call = rows_.call;
    const FusedRow& row = rows_.row(r);
    const PartialStates partial = partial_of(call, rows_.item);
    if (partial.data != nullptr) {
      partial.o(call, (rows_.first + r) / call.group_size, row.head)[i] += v;
      return;
    }
    char* const to = output_of(call, row.q_row, row.head);
    tile::store(reinterpret_cast<Output*>(to) + i, element<Output>(to, i) + v);
  }

 private:
  const TileRows& rows_;
};

}  // namespace weft::attention::cuda::mma
