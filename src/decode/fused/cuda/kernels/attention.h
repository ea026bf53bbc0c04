// An item of attention, by one warp: its queries against the keys of an entry of the ring, one softmax over all of
// them, and a state for each row and query head. There is nothing to carry from one part of the keys to the next, as
// an item has no more keys than a warp has registers for.
//
//   // a warp that copies; its lane 0 has acquired the entry, and arrives at `full` behind it
//   CopyItem<kDim, kKeys>(args, item).start(entry, full);
//   // all warps that attend: a round's heads, each made once for as many of its items as need it
//   if (!make_round<bf16, kDim, kPieces>(args, edge, {sums, phase}, warp * side, count, warps * side, at, heads))
//     return give_up();
//   sync();
//   // the warp that the entry belongs to, once it is there; then it releases the entry
//   AttendItem<bf16, kDim, kKeys, Edge>(args, item, entry, heads).attend({states, phase + 1});
//
// Heads come from other CTAs, a trip to memory for as many as a warp makes at once: so all warps share them, whether
// they have items or not.
//
// What the item's rows bring themselves is in no cache yet: these keys and values are heads of the round too, rounded
// as the cache does, and those of the item's own rows are stored into the cache. Rows of the entry that hold no key are
// not read, as 0 times a value that is NaN would be: a lane that would read one reads another, which is hidden. Queries
// that are none repeat the last one, and give scores that nobody reads.
//
// A row's bits follow from its own keys and from where the item begins, not from the rows beside it, nor from values
// that it does not see, whatever these are.
#pragma once

#include "decode/fused/cuda/kernels/attention_args.h"
#include "decode/fused/cuda/kernels/round.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/softmax.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// What a state's largest score is multiplied by to be a logit times log2(e). With a soft cap scores are logits.
WEFT_INLINE float to_log2_of(float scale, float soft_cap) {
  return soft_cap > 0.f ? tile::kLog2E : scale * tile::kLog2E;
}

template <class T>
inline constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<bf16> = true;

// T: bf16 or fp16, of the cache and of products. kKeys: tokens of an item at most.
template <class T, int kDim, int kKeys, class Edge>
class AttendItem {
  static_assert(kDim % 16 == 0 && kKeys % 32 == 0);
  using Cell = typename Edge::Cell;
  static constexpr int kGroups = kKeys / 16;               // of keys, a product's depth
  static constexpr int kSlice = kDim % 32 == 0 ? 32 : 16;  // of outputs, at a time

 public:
  // `heads`: its round's.
  WEFT_INLINE AttendItem(const AttendArgs& args, const CardItem& item, u8* entry, u8* heads)
      : args_(args),
        item_(item),
        entry_{entry, item.tokens()},
        heads_(heads),
        group_(args.heads.num_qo_heads / args.heads.num_kv_heads),
        num_rows_((item.row_end - item.row_begin) * group_),
        first_own_(item.own_begin() - item.kv_begin) {}

  // Once the entry and all heads are there.
  WEFT_INLINE void attend(PhaseCells<Cell> states) const {
    float scores[1][2 * kGroups][4] = {};
    multiply_keys(scores[0]);
    const float to_log2 = to_log2_of(args_.scale, args_.soft_cap);
    finish_scores(scores[0]);
    tile::RowState state[1] = {tile::RowState::empty()};
    float shrink[1][2];
    tile::follow_maxima(state, scores, to_log2, shrink);
    tile::exponentiate(state, scores, to_log2);
    write_sums(state[0], states);
    u32 probabilities[kGroups][4];
    WEFT_UNROLL
    for (int g = 0; g < kGroups; ++g) WEFT_UNROLL
    for (int i = 0; i < 4; ++i)
      probabilities[g][i] = tile::pack<T>(scores[0][2 * g + i / 2][i % 2 * 2], scores[0][2 * g + i / 2][i % 2 * 2 + 1]);
    WEFT_NO_UNROLL
    for (int column = 0; column < kDim; column += kSlice) multiply_values(probabilities, column, states);
  }

 private:
  // Rows of the entry that hold keys: [first_held(), tokens).
  WEFT_INLINE int first_held() const { return item_.first_seen - item_.kv_begin; }
  WEFT_INLINE bool has_keys(int group) const { return 16 * group < entry_.tokens && 16 * group + 16 > first_held(); }
  // The nearest of them.
  WEFT_INLINE int held(int row) const {
    const int least = row < first_held() ? first_held() : row;
    return least < entry_.tokens ? least : entry_.tokens - 1;
  }

  // Of those rows, the ones behind first_own_ are heads of the round.
  WEFT_INLINE u8* head(int i) const { return heads_ + i * entry_row_bytes(kDim); }
  WEFT_INLINE u8* key(int row) const {
    return row < first_own_ ? entry_.key(row) : head(item_.first_own + 2 * (row - first_own_));
  }
  WEFT_INLINE u8* value(int row) const {
    return row < first_own_ ? entry_.value(row) : head(item_.first_own + 2 * (row - first_own_) + 1);
  }
  WEFT_INLINE u8* query(int i) const { return head(item_.first_query + (i < num_rows_ ? i : num_rows_ - 1)); }

  WEFT_INLINE void multiply_keys(float (&scores)[2 * kGroups][4]) const {
    const int lane = ptx::lane();
    const ptx::SharedPlace queries = ptx::shared_place(query(lane % 16) + lane / 16 * 16);
    WEFT_UNROLL
    for (int g = 0; g < kGroups; g += 2) {  // two at a time, so that four products are under way
      if (!has_keys(g) && !has_keys(g + 1)) continue;
      const int first = 16 * g + lane % 8 + lane / 16 * 8;
      const ptx::SharedPlace keys[2] = {ptx::shared_place(key(held(first)) + lane / 8 % 2 * 16),
                                        ptx::shared_place(key(held(first + 16)) + lane / 8 % 2 * 16)};
      WEFT_UNROLL
      for (int k = 0; k < kDim; k += 16) {
        u32 a[4], b[2][4];
        ptx::ldmatrix_x4(a, queries + 2 * k);
        WEFT_UNROLL
        for (int i = 0; i < 2; ++i) ptx::ldmatrix_x4(b[i], keys[i] + 2 * k);
        WEFT_UNROLL
        for (int i = 0; i < 4; ++i)
          tile::multiply<T>(scores[2 * g + i], a, b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
      }
    }
  }

  // Keys [first, last] of the item: what one of the lane's rows sees, or none.
  struct Seen {
    int first, last;
    WEFT_INLINE bool has(int key) const { return key >= first && key <= last; }
  };
  WEFT_INLINE Seen seen_by(int half) const {
    const int i = tile::fragment_row(half);
    if (i >= num_rows_) return {0, -1};
    const int last = item_.cached + item_.row_begin + i / group_ - item_.first_row - item_.kv_begin;
    return {args_.window > 0 ? last - args_.window + 1 : 0, last};
  }

  // Capped where the model does so; what a row does not see is hidden.
  WEFT_INLINE void finish_scores(float (&scores)[2 * kGroups][4]) const {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Seen seen = seen_by(half);
      WEFT_UNROLL
      for (int f = 0; f < 2 * kGroups; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        float& score = scores[f][2 * half + e];
        const int key = 8 * f + tile::fragment_column() + e;
        if (args_.soft_cap > 0.f) score = ops::capped(score * args_.scale, args_.soft_cap);
        if (!seen.has(key)) score = ptx::from_bits(0xff800000u);
      }
    }
  }

  // Behind a state's outputs: its largest score and its sum.
  WEFT_INLINE void write_sums(const tile::RowState& state, PhaseCells<Cell> states) const {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float two[2] = {state.maximum[half], state.total(half)};
      const int i = tile::fragment_row(half);
      if (tile::fragment_column() == 0 && i < num_rows_) Edge::write(state_of(states, i) + kDim, two, states.phase);
    }
  }

  // Adds up a_of(group) times values, columns from `column` on, whose pairs are changed first.
  template <int kFragments, class AOf, class Change>
  WEFT_INLINE void multiply_slice(const AOf& a_of, const Change& change, int column,
                                  float (&outputs)[kFragments][4]) const {
    const int lane = ptx::lane();
    WEFT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      if (!has_keys(g)) continue;
      u32 a[4];
      a_of(g, a);
      const ptx::SharedPlace values = ptx::shared_place(value(held(16 * g + lane % 16)) + 2 * column + lane / 16 * 16);
      WEFT_UNROLL
      for (int n = 0; n < 8 * kFragments; n += 16) {
        u32 b[4];
        ptx::ldmatrix_x4_trans(b, values + 2 * n);
        WEFT_UNROLL
        for (u32& pair : b) pair = change(pair);
        tile::multiply<T>(outputs[n / 8], a, b[0], b[1]);
        tile::multiply<T>(outputs[n / 8 + 1], a, b[2], b[3]);
      }
    }
  }

  // Both halves of those elements that are not finite.
  WEFT_INLINE static u32 not_finite(u32 pair) {
    constexpr u32 kExponent = kIsBf16<T> ? 0x7f80 : 0x7c00;
    return ((pair & kExponent) == kExponent ? 0xffffu : 0u) | ((pair >> 16 & kExponent) == kExponent ? ~0xffffu : 0u);
  }

  WEFT_INLINE static void copy(const u32 (&from)[4], u32 (&to)[4]) {
    WEFT_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = from[i];
  }

  // Columns of a state, from `column` on.
  WEFT_INLINE void multiply_values(const u32 (&probabilities)[kGroups][4], int column, PhaseCells<Cell> states) const {
    float outputs[kSlice / 8][4] = {};
    multiply_slice([&](int g, u32(&a)[4]) { copy(probabilities[g], a); }, [](u32 pair) { return pair; }, column,
                   outputs);
    bool are_finite = true;
    WEFT_UNROLL
    for (int f = 0; f < kSlice / 8; ++f) WEFT_UNROLL
    for (int i = 0; i < 4; ++i) are_finite = are_finite && ptx::absolute(outputs[f][i]) <= 3.4028235e38f;
    if (ptx::ballot(!are_finite) == 0) return write_outputs(outputs, column, states);
    WEFT_NO_UNROLL
    for (int n = column; n < column + kSlice; n += 16) contain(probabilities, n, states);
  }

  // The same of 16 columns where some output is not finite, as 0 times a value that is not is NaN: a row that sees no
  // such value gets what the finite ones give.
  WEFT_INLINE void contain(const u32 (&probabilities)[kGroups][4], int column, PhaseCells<Cell> states) const {
    const auto of_row = [&](int g, u32(&a)[4]) { copy(probabilities[g], a); };
    u32 reached = 0;  // bit 4f + i: the row sees such a value
    {
      const int half = ptx::opaque(0);
      const Seen seen[2] = {seen_by(half), seen_by(half + 1)};
      float values[2][4] = {};
      multiply_slice(
          [&](int g, u32(&a)[4]) {
            WEFT_UNROLL
            for (int i = 0; i < 4; ++i) {
              const int key = 16 * ptx::opaque(g) + i / 2 * 8 + tile::fragment_column();
              a[i] = tile::pack<T>(seen[i % 2].has(key) ? 1.f : 0.f, seen[i % 2].has(key + 1) ? 1.f : 0.f);
            }
          },
          [](u32 pair) { return not_finite(pair) & tile::pack<T>(1.f, 1.f); }, column, values);
      WEFT_UNROLL
      for (int f = 0; f < 2; ++f) WEFT_UNROLL
      for (int i = 0; i < 4; ++i) reached |= values[f][i] > 0.f ? 1u << (4 * f + i) : 0;
    }
    float all[2][4] = {}, finite[2][4] = {};
    multiply_slice(
        of_row, [](u32 pair) { return pair; }, column, all);
    multiply_slice(
        of_row, [](u32 pair) { return pair & ~not_finite(pair); }, column, finite);
    WEFT_UNROLL
    for (int f = 0; f < 2; ++f) WEFT_UNROLL
    for (int i = 0; i < 4; ++i) all[f][i] = (reached >> (4 * f + i) & 1) != 0 ? all[f][i] : finite[f][i];
    write_outputs(all, column, states);
  }

  template <int kFragments>
  WEFT_INLINE void write_outputs(const float (&outputs)[kFragments][4], int column, PhaseCells<Cell> states) const {
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int i = tile::fragment_row(half);
      if (i >= num_rows_) break;
      WEFT_UNROLL
      for (int f = 0; f < kFragments; ++f) {
        const float two[2] = {outputs[f][2 * half], outputs[f][2 * half + 1]};
        Edge::write(state_of(states, i) + column + 8 * f + tile::fragment_column(), two, states.phase);
      }
    }
  }

  WEFT_INLINE Cell* state_of(PhaseCells<Cell> states, int i) const {
    return states.cells + static_cast<i64>(item_.first_state + i) * (kDim + 2);
  }

  const AttendArgs& args_;
  const CardItem& item_;
  const ItemEntry<kDim> entry_;
  u8* const heads_;
  const int group_, num_rows_;  // rows: pairs of a row and a query head
  const int first_own_;         // row of the entry
};
#endif

}  // namespace weft::decode::fused
