// A work item as kernels walk it: which rows see which keys, and where those keys lie.
#pragma once

#include "attention/cuda/kernels/args.h"
#include "attention/cuda/kernels/shared.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::attention::cuda {

// A copy of the plan's header, at the beginning of the CTA's shared memory; sections lie in the workspace, from
// call.plan on.
WEFT_INLINE const PlanHeader& header() { return *reinterpret_cast<const PlanHeader*>(ptx::shared_memory()); }

WEFT_INLINE int clamped(i64 value, int high) { return static_cast<int>(value < 0 ? 0 : value > high ? high : value); }

WEFT_INLINE Visible visible_to(const PlanHeader& plan, int q_pos, int kv_len) {
  Visible visible = {{0, 0}, {plan.num_intervals == 0 ? kv_len : 0, 0}};
  const auto evaluate = [&](const BoundTerm& term) {
    return clamped(static_cast<i64>(term.q_pos ? q_pos : 0) + (term.kv_len ? kv_len : 0) + term.constant, kv_len);
  };
  WEFT_UNROLL
  for (int i = 0; i < kMaxIntervals; ++i) {
    if (i >= plan.num_intervals) continue;
    const ResolvedInterval& interval = plan.intervals[i];
    int lower = 0, upper = kv_len;
    WEFT_NO_UNROLL
    for (int k = 0; k < interval.num_lower; ++k) {
      const int bound = evaluate(interval.lower[k]);
      lower = bound > lower ? bound : lower;
    }
    WEFT_NO_UNROLL
    for (int k = 0; k < interval.num_upper; ++k) {
      const int bound = evaluate(interval.upper[k]);
      upper = bound < upper ? bound : upper;
    }
    if (lower < upper) {
      visible.lower[i] = lower;
      visible.upper[i] = upper;
    }
  }
  return visible;
}

// A query token of an item, counted from its first one. Of rows that lie together only the position is read, by the
// length.
WEFT_INLINE PlanRow token_of(const Call& call, const ItemRecord& item, int token) {
  const PlanHeader& plan = header();
  if (item.q_row < 0) return section<PlanRow>(call.plan, plan.rows)[item.row_begin + token];
  const int idx = item.idx + token, kv_len = section<int>(call.plan, plan.kv_len)[item.request];
  return {item.q_row + token, item.request, idx, kv_len - item.qo_len + idx};
}

// Fused row `f` of a KV head of the item: query token after query token, each with the heads of the group.
WEFT_INLINE FusedRow fused_row(const Call& call, const ItemRecord& item, int kv_head, int f) {
  const PlanHeader& plan = header();
  const int token = f / call.group_size;
  const PlanRow row = token_of(call, item, token);
  FusedRow fused;
  fused.q_row = row.q_row;
  fused.request = row.request;
  fused.idx = row.idx;
  fused.pos = row.pos;
  fused.kv_head = kv_head;
  fused.head = kv_head * call.group_size + f % call.group_size;
  fused.qo_len = item.q_row < 0 ? section<int>(call.plan, plan.qo_len)[row.request] : item.qo_len;
  fused.kv_len = section<int>(call.plan, plan.kv_len)[row.request];
  fused.of_block = item.block_row + token;
  fused.visible = visible_to(plan, row.pos, fused.kv_len);
  return fused;
}

// Calls work(kv_head, first, n) for the fused rows [first, first + n) of each KV head of an item, at most kRows of them
// at a time.
template <int kRows, class Work>
WEFT_INLINE void for_row_tiles(const Call& call, const ItemRecord& item, const Work& work) {
  const int num_rows = item.num_rows * call.group_size;
  WEFT_NO_UNROLL
  for (int kv_head = item.kv_head_begin; kv_head < item.kv_head_end; ++kv_head) WEFT_NO_UNROLL
  for (int first = 0; first < num_rows; first += kRows)
    work(kv_head, first, num_rows - first < kRows ? num_rows - first : kRows);
}

// What n rows see together, by one warp.
WEFT_INLINE VisibleRange hull_of(const FusedRow* rows, int n) {
  VisibleRange visible;
  WEFT_UNROLL
  for (int i = 0; i < 2; ++i) {
    constexpr int kFar = 0x7fffffff;
    int low = kFar, high = 0, all_low = 0, all_high = kFar;
    WEFT_NO_UNROLL
    for (int r = ptx::lane(); r < n; r += 32) {
      const int lower = rows[r].visible.lower[i], upper = rows[r].visible.upper[i];
      if (lower < upper && lower < low) low = lower;
      if (upper > high) high = upper;
      if (lower > all_low) all_low = lower;
      if (upper < all_high) all_high = upper;
    }
    visible.low[i] = ptx::least_of_lanes(low);
    visible.high[i] = -ptx::least_of_lanes(-high);
    visible.all_low[i] = -ptx::least_of_lanes(-all_low);
    visible.all_high[i] = ptx::least_of_lanes(all_high);
  }
  return visible;
}

// Where the keys of an item end: of an open end where the page list ends now.
WEFT_INLINE int end_of(const Call& call, const ItemRecord& item) {
  const PlanHeader& plan = header();
  if (item.kv_end != kOpenEnd) return item.kv_end;
  return section<int>(call.plan, plan.kv_len)[item.request] - item.first_pos;
}

// A token's page, or 0 where there are none, and its place there.
struct Place {
  i64 page, slot;
};
WEFT_INLINE Place place_of(const Call& call, const ItemRecord& item, int t) {
  const int page_size = call.token_page_size;
  if (page_size == 0) return {0, item.first + t};
  if (call.paged) {
    const int* const pages = section<int>(call.plan, header().page_indices) + item.first;
    return {pages[t / page_size], t % page_size};
  }
  const i64 row = item.first + t;
  return {row / page_size, row % page_size};
}
WEFT_INLINE const char* row_of(const TokensView& view, const Place& place, int head) {
  const i64 row = view.group == 1 ? place.slot : place.slot / view.group;
  return view.data + place.page * view.page_stride + row * view.token_stride + head * view.head_stride;
}

// The same for the tokens of one item, with all that they have in common known; a division is a multiplication.
template <class S>
class Tokens : private TokensOfItem {
 public:
  WEFT_INLINE Tokens(const Call& call, const ItemRecord& item) {
    if constexpr (S::kPaged) {
      ids = section<int>(call.plan, header().page_indices) + item.first;
      last_id = item.num_page_ids - 1;
      tokens_a_page = S::kPageSize > 0 ? S::kPageSize : call.token_page_size;
      reciprocal = 0xffffffffu / static_cast<u32>(tokens_a_page);
    } else {
      const Place place = place_of(call, item, 0);
      first_page = place.page;
      first_slot = place.slot;
    }
  }
  // The id of token t's page.
  WEFT_INLINE int page(int t) const {
    if constexpr (S::kPaged) return *id(t);
    return 0;
  }
  // Where it lies, of pages.
  WEFT_INLINE const int* id(int t) const { return ids + index_of_page(t); }
  // The same before the item's end is known: of a token behind the list any of its pages.
  WEFT_INLINE int page_if_listed(int t) const {
    if constexpr (S::kPaged) {
      const int page = index_of_page(t);
      return last_id < 0 ? 0 : ids[page < last_id ? page : last_id];
    }
    return 0;
  }
  // The position of token t of the list, and where the bits of its block begin (bits_of_token).
  WEFT_INLINE int position(const Call& call, const ItemRecord& item, int t) const {
    const PlanHeader& plan = header();
    if (plan.positions_per_page == 0) return item.first_pos + t;
    const int* const known = section<int>(call.plan, plan.kv_positions);
    if (plan.positions_per_page != 1) return known[item.first * page_size() + t];
    const int page = index_of_page(t);
    return known[item.first + page] + t - page * page_size();
  }
  WEFT_INLINE i64 bits(const Call& call, const ItemRecord& item, int t) const {
    const PlanHeader& plan = header();
    if (plan.bits_index.count == 0) return -1;
    const int pattern = section<int>(call.plan, plan.bits_index)[item.first + index_of_page(t)];
    return pattern < 0 ? -1 : pattern * bytes_of_bits(plan.block_rows, page_size());
  }
  // What memory says of token t before the item's end is known: of one behind the list that of the last one.
  template <class Listed>
  WEFT_INLINE Listed if_listed(const Call& call, const ItemRecord& item, int t) const {
    if constexpr (requires(Listed listed) { listed.pos; }) {
      if (last_id < 0) return {};
      const int end = (last_id + 1) * page_size(), own = t < end ? t : end - 1;
      return {page_if_listed(t), position(call, item, own), bits(call, item, own)};
    } else {
      return {page_if_listed(t)};
    }
  }
  // Where token t lies, whose page was looked up.
  struct Slot {
    u32 page;
    i64 slot;
  };
  WEFT_INLINE Slot slot(int page, int t) const {
    if constexpr (S::kPaged) return {static_cast<u32>(page), static_cast<u32>(t - index_of_page(t) * page_size())};
    return {0, first_slot + t};
  }
  // Where token t lies: of one behind token `last` as if it were of that one's page.
  WEFT_INLINE Place place(int t, int last) const {
    if constexpr (S::kPaged) {
      const int page = index_of_page(t), last_page = index_of_page(last);
      return {ids[page < last_page ? page : last_page], t - page * page_size()};
    }
    return {first_page, first_slot + t};
  }
  // Of a tensor in which so many tokens that follow each other share a row.
  template <int kSharing = 1>
  WEFT_INLINE const char* row(const TokensView& view, const Slot& at, int head) const {
    const i64 page = S::kPaged ? at.page : first_page;
    return view.data + head * view.head_stride + page * view.page_stride + at.slot / kSharing * view.token_stride;
  }
  WEFT_INLINE const char* row(const TokensView& view, int page, int t, int head) const {
    return row(view, slot(page, t), head);
  }

 private:
  WEFT_INLINE int page_size() const { return S::kPageSize > 0 ? S::kPageSize : tokens_a_page; }
  // t / page_size(), exactly: the first quotient is at most one too small (as weft::div_const).
  WEFT_INLINE int index_of_page(int t) const {
    const u32 n = static_cast<u32>(t);
    if constexpr (S::kPageSize > 0) return static_cast<int>(n / S::kPageSize);
    const u32 size = static_cast<u32>(tokens_a_page);
    const u32 quotient = static_cast<u32>(static_cast<u64>(n) * reciprocal >> 32);
    return static_cast<int>(quotient + (n - quotient * size >= size ? 1 : 0));
  }
};

// The position of token t of an item's list.
WEFT_INLINE int position_of(const Call& call, const ItemRecord& item, int t) {
  const PlanHeader& plan = header();
  if (plan.positions_per_page == 0) return item.first_pos + t;
  const int* const known = section<int>(call.plan, plan.kv_positions);
  if (plan.positions_per_page == plan.page_size) return known[item.first * plan.page_size + t];
  return known[item.first + t / plan.page_size] + t % plan.page_size;
}

// The bits that say which rows of its list see token t: where those of its block begin, -1 where every row does.
WEFT_INLINE i64 bits_of_token(const Call& call, const ItemRecord& item, int t) {
  const PlanHeader& plan = header();
  if (plan.bits_index.count == 0) return -1;
  const int pattern = section<int>(call.plan, plan.bits_index)[item.first + t / plan.page_size];
  return pattern < 0 ? -1 : pattern * bytes_of_bits(plan.block_rows, plan.page_size);
}
WEFT_INLINE bool bits_show(const Call& call, i64 bits, int row, int t) {
  const PlanHeader& plan = header();
  if (bits < 0) return true;
  const i64 bit = static_cast<i64>(row) * plan.page_size + t % plan.page_size;
  return (section<unsigned char>(call.plan, plan.bits)[bits + bit / 8] >> (bit % 8) & 1) != 0;
}

}  // namespace weft::attention::cuda
