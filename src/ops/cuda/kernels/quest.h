// Quest on a card: summaries of pages, bounds by them, and the choice of pages, which goes into an uploaded plan.
//
//   summaries of pages, some tiles ahead -> bounds -> keys, to all CTAs of the list's cluster
//   each CTA: threshold among all keys (tile/cuda/select.h) -> its part of the chosen pages -> page ids, positions
//
// The generated text instantiates one kernel: WEFT_SUMMARISE(symbol, element of keys, element of summaries),
// WEFT_CHOOSE(symbol, class of bounds) or WEFT_SET_PAGES(symbol).
#pragma once

#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/quest/bounds.h"
#include "ops/cuda/kernels/quest/product_bounds.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::ops {

inline constexpr int kQuestWarps = kQuestThreads / 32;

// ---------------------------------------------------------------- summaries

WEFT_INLINE void store_bounds(float* low, float* high, float least, float most) {
  *low = least;
  *high = most;
}
WEFT_INLINE void store_bounds(bf16* low, bf16* high, float least, float most) {
  low->bits = tile::bf16_towards(least, false);
  high->bits = tile::bf16_towards(most, true);
}

// A warp a place and head.
template <class Key, class Summary>
WEFT_INLINE void summarise(const SummariseArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const i64 warps = static_cast<i64>(ptx::num_ctas()) * kQuestWarps;
  for (i64 i = static_cast<i64>(ptx::cta_index()) * kQuestWarps + ptx::warp(); i < args.num_places * args.heads;
       i += warps) {
    const i64 at = i / args.heads;
    const int head = static_cast<int>(i % args.heads);
    const CachePlace place = place_of(args, at);
    if (at + 1 < args.num_places && follows(place_of(args, at + 1), place, 1)) continue;
    const CardSummaries& to = args.to;
    Summary* const low = static_cast<Summary*>(to.low) + place.page * to.low_page_stride + head * to.low_head_stride;
    Summary* const high =
        static_cast<Summary*>(to.high) + place.page * to.high_page_stride + head * to.high_head_stride;
    for (int channel = ptx::lane(); channel < args.dim; channel += 32) {
      float least = ptx::from_bits(0x7f800000u), most = -least;
      WEFT_UNROLL_4
      for (int slot = 0; slot <= place.slot; ++slot) {
        const float x = tile::to_float(row_at<Key>(args.keys, {place.page, slot}, head)[channel]);
        least = x < least || x != x ? x : least;  // NaN stays
        most = x > most || x != x ? x : most;
      }
      store_bounds(low + channel, high + channel, least, most);
    }
  }
}

// ---------------------------------------------------------------- choice

template <class Bounds>
struct alignas(128) ChooseShared {
  typename Bounds::Shared bounds;
  ListKeys::Shared keys;
  tile::SelectScratch select;
};

// All threads: the `take` largest of the competing pages, and the others behind them.
WEFT_INLINE void choose_largest(const List& list, int take, const ListKeys& keys, tile::SelectScratch& scratch) {
  const int n = list.of.competing;
  if (take > 0) {
    const u32* const all = keys.all();
    const auto key = [&](int i) { return all[i]; };
    const tile::Chosen chosen = tile::find_largest<kQuestThreads>(n, take, key, scratch);
    const ListKeys::Share own = keys.share_to_write(n);
    tile::for_chosen<kQuestThreads>(own.begin, own.end, chosen, key, scratch,
                                    [&](int page, int place) { list.put(place, page); });
  }
  const ListKeys::Share others = keys.share_to_write(list.of.pages - n);
  for (int i = others.begin + ptx::thread_index(); i < others.end; i += kQuestThreads) list.put(take + i, n + i);
}

template <class Bounds>
WEFT_INLINE void choose(const ChooseArgs& args) {
  ListKeys::begin();
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  auto& shared = *reinterpret_cast<ChooseShared<Bounds>*>(ptx::shared_memory());
  static_assert(sizeof shared == choose_shared_bytes(sizeof(typename Bounds::Shared)));
  const int heads = args.to.num_kv_heads, index = ptx::cta_index() / args.parts, part = ptx::cta_index() % args.parts;
  const int request = index / heads, kv_head = index % heads, budget = args.to.budget;
  const List list(args.requests, args.to, request, kv_head);
  if (part == 0 && kv_head == 0 && ptx::warp() == 0) list.put_lengths();
  if (list.of.pages <= budget) {  // all of them
    for (int place = part * kQuestThreads + ptx::thread_index(); place < budget; place += args.parts * kQuestThreads)
      if (place < list.of.pages)
        list.put(place, place);
      else
        list.leave_out(place);
    return ListKeys::wait_for_others();
  }
  const ListKeys keys(args, index, part, list.of.competing, shared.keys);
  Bounds(args, list, kv_head, shared.bounds).find(keys);
  if (keys.join()) choose_largest(list, budget - (list.of.pages - list.of.competing), keys, shared.select);
}

// ---------------------------------------------------------------- choices of others

// A warp a list.
WEFT_INLINE void set_pages(const SetPagesArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  const int heads = args.to.num_kv_heads, num_lists = heads * args.requests.batch, budget = args.to.budget;
  WEFT_NO_UNROLL
  for (int at = ptx::cta_index() * kQuestWarps + ptx::warp(); at < num_lists; at += ptx::num_ctas() * kQuestWarps) {
    const List list(args.requests, args.to, at / heads, at % heads);
    if (at % heads == 0) list.put_lengths();
    const int* const selected = args.selected + static_cast<i64>(at) * budget;
    int last = -1;  // the largest place so far, of which the last page must be one
    bool ended = false, is_wrong = false;
    WEFT_NO_UNROLL
    for (int first = 0; first < budget; first += 32) {
      const int place = first + ptx::lane();
      const int given = place < budget ? selected[place] : -1;
      const u32 ends = ptx::ballot(given == -1), before = (1u << ptx::lane()) - 1;
      const bool is_listed = !ended && (ends & (before | 1u << ptx::lane())) == 0;
      if (is_listed) {
        const int page = clamped(given, list.of.pages);
        const int previous = place == 0 ? -1 : selected[place - 1];
        is_wrong = is_wrong || page != given || given <= previous;
        last = page > last ? page : last;
        if (list.of.pages > 0)
          list.put(place, page);
        else
          list.leave_out(place);
      } else if (place < budget) {
        list.leave_out(place);
      }
      ended = ended || ends != 0;
    }
    last = -ptx::least_of_lanes(-last);
    if (ptx::ballot(is_wrong) != 0 || last + 1 != list.of.pages)
      if (ptx::lane() == 0) ptx::atomic_or(args.requests.clamped, 1);
  }
}

}  // namespace weft::ops

#define WEFT_SUMMARISE(symbol, element, summary)                              \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::SummariseArgs args) { \
    weft::ops::summarise<element, summary>(args);                             \
  }
#define WEFT_CHOOSE(symbol, ...) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::ChooseArgs args) { weft::ops::choose<__VA_ARGS__>(args); }
#define WEFT_SET_PAGES(symbol) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::SetPagesArgs args) { weft::ops::set_pages(args); }
