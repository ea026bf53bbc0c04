// Quest on a card: summaries of pages, bounds by them, and the choice of pages, which goes into an uploaded plan.
//
// The generated text instantiates one kernel: WEFT_SUMMARISE(symbol, element of keys, element of summaries),
// WEFT_CHOOSE(symbol, element of queries, element of summaries, query rows at a time) or WEFT_SET_PAGES(symbol).
#pragma once

#include "ops/cuda/kernels/cache.h"
#include "ops/cuda/kernels/quest_args.h"
#include "ops/cuda/kernels/rows.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/ptx/prefetch.h"
#include "tile/cuda/select.h"

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

// ---------------------------------------------------------------- lists

// A request's tokens and pages; those without query tokens compete.
struct RequestPages {
  int request, tokens, pages, competing;
};
WEFT_INLINE RequestPages pages_of(const CardRequests& args, int request) {
  const int given = args.kv_len[request], tokens = clamped(given, args.most_tokens + 1);
  if (tokens != given) ptx::atomic_or(args.clamped, 1);
  const int before = tokens - args.qo_len;
  return {request, tokens, (tokens + args.page_size - 1) / args.page_size, before > 0 ? before / args.page_size : 0};
}
WEFT_INLINE int page_id(const CardRequests& args, int request, int page) {
  const int given = args.page_table[request * args.table_stride + page], id = clamped(given, args.num_pages);
  if (id != given) ptx::atomic_or(args.clamped, 1);
  return id;
}

// One list of the plan.
struct List {
  const CardRequests& requests;
  const CardLists& to;
  RequestPages of;
  i64 first;  // among page ids

  WEFT_INLINE List(const CardRequests& all, const CardLists& lists, int request, int kv_head)
      : requests(all),
        to(lists),
        of(pages_of(all, request)),
        first((static_cast<i64>(kv_head) * all.batch + request) * lists.budget) {}

  WEFT_INLINE void put(int place, int page) const {
    to.page_ids[first + place] = page_id(requests, of.request, page);
    to.positions[first + place] = page * requests.page_size;
  }
  // What stands there is hidden: a page that exists.
  WEFT_INLINE void leave_out(int place) const {
    to.page_ids[first + place] = of.pages > 0 ? page_id(requests, of.request, of.pages - 1) : 0;
    to.positions[first + place] = to.hidden_position;
  }
  // What the request's lists have in common, by the lanes of a warp.
  WEFT_INLINE void put_lengths() const {
    if (ptx::lane() == 0) to.kv_len[of.request] = of.tokens;
    for (int i = ptx::lane(); i < requests.qo_len; i += 32)
      to.q_positions[(static_cast<i64>(of.request) * requests.qo_len + i) * to.q_position_stride] =
          of.tokens - requests.qo_len + i;
  }
};

// ---------------------------------------------------------------- bounds

// Eight neighbouring elements of a summary, as they lie.
template <class T>
struct EightOf;
template <>
struct EightOf<bf16> {
  Bytes16 words;
  WEFT_INLINE explicit EightOf(const bf16* from) : words(*reinterpret_cast<const Bytes16*>(from)) {}
  WEFT_INLINE float operator[](int i) const {
    const u32 pair = words.word[i / 2];
    return ptx::from_bits(i % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
};
template <>
struct EightOf<float> {
  Bytes16 words[2];
  WEFT_INLINE explicit EightOf(const float* from)
      : words{reinterpret_cast<const Bytes16*>(from)[0], reinterpret_cast<const Bytes16*>(from)[1]} {}
  WEFT_INLINE float operator[](int i) const { return ptx::from_bits(words[i / 4].word[i % 4]); }
};

// Sums of kValues numbers, a power of two up to 16, over 16 neighbouring lanes, each of which gets one of them: that of
// index lane % 16 / (16 / kValues).
template <int kValues>
WEFT_INLINE float sum_among_16(float (&x)[kValues]) {
  int left = kValues;
  WEFT_UNROLL
  for (int mask = 8; mask > 0; mask /= 2) {
    const bool is_upper = (ptx::lane() & mask) != 0;
    if (left == 1) {
      x[0] += ptx::shuffle_xor(x[0], mask);
      continue;
    }
    left /= 2;
    WEFT_UNROLL
    for (int i = 0; i < left; ++i) {
      const float sent = is_upper ? x[i] : x[i + left], kept = is_upper ? x[i + left] : x[i];
      x[i] = kept + ptx::shuffle_xor(sent, mask);
    }
  }
  return x[0];
}

// Bounds of one list's pages: 16 lanes have 2 pages, and each lane 8 channels of 128.
template <class Query, class Summary, int kRows>
class Bounds {
  static constexpr int kPages = 2, kChannels = 8, kSpan = 16 * kChannels;
  static_assert(2 * kQuestWarps * kPages == kTilePages);

 public:
  // `queries`: kQuestWords of shared memory.
  WEFT_INLINE Bounds(const ChooseArgs& args, const List& list, int kv_head, float* queries)
      : args_(args), list_(list), kv_head_(kv_head), queries_(queries), rows_(args.requests.qo_len * args.group) {
    rows_at_once_ = kQuestWords / args.dim / kRows * kRows;
  }

  // All threads; keys of the pages of a part's tiles.
  WEFT_INLINE void find(int part, u32* keys) const {
    WEFT_NO_UNROLL
    for (int tile = part, last = -1; tile * kTilePages < list_.of.competing; tile += args_.parts) {
      const Located pages = locate(tile);
      float most = ptx::from_bits(0xff800000u);
      WEFT_NO_UNROLL
      for (int first = 0; first < rows_; first += rows_at_once_) {
        const int n = rows_ - first < rows_at_once_ ? rows_ - first : rows_at_once_;
        if (last != first) {
          load_queries(first, n);
          last = first;
        }
        most = ptx::larger(most, most_of_rows(pages, n));
      }
      // Of the lanes that have a page's bound, the first.
      const int own = ptx::lane() % 16, page = page_of(tile, own / (16 / kPages));
      if (own % (16 / kPages) == 0 && page < list_.of.competing) keys[page] = tile::ordered_key(most);
    }
  }

 private:
  struct Located {
    const Summary *low[kPages], *high[kPages];
  };

  WEFT_INLINE int page_of(int tile, int i) const {
    return tile * kTilePages + (ptx::warp() * 2 + ptx::lane() / 16) * kPages + i;
  }

  // This lane's pages of a tile. Their summaries come to the cache: queries are waited for first.
  WEFT_INLINE Located locate(int tile) const {
    Located pages;
    const CardSummaries& from = args_.summaries;
    const int channel = ptx::lane() % 16 * kChannels;
    WEFT_UNROLL
    for (int i = 0; i < kPages; ++i) {
      const int page = page_of(tile, i), last = list_.of.competing - 1;
      const int id = page_id(args_.requests, list_.of.request, page < last ? page : last);
      pages.low[i] =
          static_cast<const Summary*>(from.low) + id * from.low_page_stride + kv_head_ * from.low_head_stride;
      pages.high[i] =
          static_cast<const Summary*>(from.high) + id * from.high_page_stride + kv_head_ * from.high_head_stride;
      if (channel >= args_.dim) continue;
      ptx::prefetch(pages.low[i] + channel);
      ptx::prefetch(pages.high[i] + channel);
    }
    return pages;
  }

  // The last one again where kRows need more.
  WEFT_INLINE void load_queries(int first, int n) const {
    ptx::cta_sync();
    const int padded = (n + kRows - 1) / kRows * kRows;
    WEFT_NO_UNROLL
    for (int i = ptx::thread_index(); i < padded * args_.dim; i += kQuestThreads) {
      const int padded_row = i / args_.dim, row = first + (padded_row < n ? padded_row : n - 1);
      const i64 token = static_cast<i64>(list_.of.request) * args_.requests.qo_len + row / args_.group;
      const int head = kv_head_ * args_.group + row % args_.group;
      const Query* const q =
          static_cast<const Query*>(args_.q) + token * args_.q_row_stride + head * args_.q_head_stride;
      queries_[i] = tile::to_float(q[i % args_.dim]);
    }
    ptx::cta_sync();
  }

  // The largest of the rows' bounds of page lane % 16 / 8; NaN counts as infinite.
  WEFT_INLINE float most_of_rows(const Located& pages, int n) const {
    float most = ptx::from_bits(0xff800000u);
    WEFT_NO_UNROLL
    for (int row = 0; row < n; row += kRows) {
      float sums[kPages * kRows] = {};  // from 0 on no sum is -0
      WEFT_NO_UNROLL
      for (int channel = ptx::lane() % 16 * kChannels; channel < args_.dim; channel += kSpan)
        add_products(row, channel, pages, sums);
      constexpr int kSharing = 16 / (kPages * kRows);  // lanes that get the same sum
      const float sum = sum_among_16(sums);
      most = ptx::larger(most, sum != sum ? ptx::from_bits(0x7f800000u) : sum);
      WEFT_UNROLL
      for (int mask = kSharing; mask < kSharing * kRows; mask *= 2)
        most = ptx::larger(most, ptx::shuffle_xor(most, mask));
    }
    return most;
  }

  WEFT_INLINE void add_products(int row, int channel, const Located& pages, float (&sums)[kPages * kRows]) const {
    const EightOf<Summary> lows[] = {EightOf<Summary>(pages.low[0] + channel),
                                     EightOf<Summary>(pages.low[1] + channel)};
    const EightOf<Summary> highs[] = {EightOf<Summary>(pages.high[0] + channel),
                                      EightOf<Summary>(pages.high[1] + channel)};
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const EightOf<float> q(queries_ + (row + r) * args_.dim + channel);
      WEFT_UNROLL
      for (int page = 0; page < kPages; ++page) WEFT_UNROLL
      for (int i = 0; i < kChannels; ++i)
        sums[page * kRows + r] =
            ptx::multiply_add(q[i], q[i] < 0.f ? lows[page][i] : highs[page][i], sums[page * kRows + r]);
    }
  }

  const ChooseArgs& args_;
  const List& list_;
  const int kv_head_;
  float* const queries_;
  const int rows_;    // queries of the group
  int rows_at_once_;  // in shared memory
};

// ---------------------------------------------------------------- choice

struct QuestShared {
  u32 words[kQuestWords];
  tile::SelectScratch scratch;
  u32 is_last;
};
static_assert(sizeof(QuestShared) == kChooseSharedBytes);

// All threads: the `take` largest of the competing pages, and the others behind them.
WEFT_INLINE void choose_largest(const List& list, int take, const u32* keys, QuestShared& shared) {
  const int n = list.of.competing;
  if (take > 0) {
    const bool fits = n <= kQuestWords;
    if (fits) {
      for (int i = ptx::thread_index(); i < n; i += kQuestThreads) shared.words[i] = keys[i];
      ptx::cta_sync();
    }
    const u32* const from = fits ? shared.words : keys;
    const auto key = [&](int i) { return from[i]; };
    const tile::Chosen chosen = tile::find_largest<kQuestThreads>(n, take, key, shared.scratch);
    tile::for_chosen<kQuestThreads>(n, chosen, key, shared.scratch,
                                    [&](int page, int place) { list.put(place, page); });
  }
  for (int page = n + ptx::thread_index(); page < list.of.pages; page += kQuestThreads) list.put(take + page - n, page);
}

template <class Query, class Summary, int kRows>
WEFT_INLINE void choose(const ChooseArgs& args) {
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  QuestShared& shared = *reinterpret_cast<QuestShared*>(ptx::shared_memory());
  const int heads = args.to.num_kv_heads, num_lists = heads * args.requests.batch;
  WEFT_NO_UNROLL
  for (int at = ptx::cta_index(); at < num_lists * args.parts; at += ptx::num_ctas()) {
    const int index = at / args.parts, part = at % args.parts, request = index / heads, kv_head = index % heads;
    const List list(args.requests, args.to, request, kv_head);
    if (part == 0 && kv_head == 0 && ptx::warp() == 0) list.put_lengths();
    if (list.of.pages <= args.to.budget) {  // all of them
      for (int place = ptx::thread_index(); part == 0 && place < args.to.budget; place += kQuestThreads)
        if (place < list.of.pages)
          list.put(place, place);
        else
          list.leave_out(place);
      continue;
    }
    u32* const keys = args.keys + static_cast<i64>(index) * args.requests.most_pages;
    Bounds<Query, Summary, kRows>(args, list, kv_head, reinterpret_cast<float*>(shared.words)).find(part, keys);
    ptx::cta_sync();
    if (ptx::thread_index() == 0)
      shared.is_last = ptx::atomic_add_acq_rel(args.done + index, 1) + 1 == static_cast<u32>(args.parts);
    ptx::cta_sync();
    if (shared.is_last == 0) continue;
    choose_largest(list, args.to.budget - (list.of.pages - list.of.competing), keys, shared);
    if (ptx::thread_index() == 0) args.done[index] = 0;  // for the next launch
    ptx::cta_sync();
  }
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
#define WEFT_CHOOSE(symbol, query, summary, rows)                          \
  WEFT_KERNEL(256, 2) void symbol(WEFT_PARAM weft::ops::ChooseArgs args) { \
    weft::ops::choose<query, summary, rows>(args);                         \
  }
#define WEFT_SET_PAGES(symbol) \
  WEFT_KERNEL(256, 1) void symbol(WEFT_PARAM weft::ops::SetPagesArgs args) { weft::ops::set_pages(args); }
