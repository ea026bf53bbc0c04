// Bounds of pages by multiply-adds, of queries and summaries in any types.
#pragma once

#include "ops/cuda/kernels/quest/keys.h"
#include "ops/cuda/kernels/quest/lists.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/prefetch.h"
#include "tile/cuda/ptx/shuffle.h"

namespace weft::ops {

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
  static constexpr int kTilePages = kQuestThreads / 16 * kPages;

 public:
  struct Shared {
    float queries[kQueryWords];
  };

  WEFT_INLINE Bounds(const ChooseArgs& args, const List& list, int kv_head, Shared& shared)
      : args_(args),
        list_(list),
        kv_head_(kv_head),
        queries_(shared.queries),
        rows_(args.requests.qo_len * args.group),
        rows_at_once_(kQueryWords / args.dim / kRows * kRows) {}

  // All threads: keys of the pages of this CTA's tiles.
  WEFT_INLINE void find(const ListKeys& keys) const {
    const ListKeys::Share share = keys.share_of((list_.of.competing + kTilePages - 1) / kTilePages);
    ListKeys::wait_for_others();
    WEFT_NO_UNROLL
    for (int tile = share.begin, loaded = -1; tile < share.end; ++tile) {
      const Located pages = locate(tile);
      float most = ptx::from_bits(0xff800000u);
      WEFT_NO_UNROLL
      for (int first = 0; first < rows_; first += rows_at_once_) {
        const int n = rows_ - first < rows_at_once_ ? rows_ - first : rows_at_once_;
        if (loaded != first) {
          load_queries(first, n);
          loaded = first;
        }
        most = ptx::larger(most, most_of_rows(pages, n));
      }
      constexpr int kSharing = 16 / kPages;  // lanes that have a page's bound
      const int own = ptx::lane() % 16, page = page_of(tile, own / kSharing);
      if (page < list_.of.competing) keys.put<kSharing>(page, tile::ordered_key(most), own % kSharing);
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
      queries_[i] = tile::to_float(query_of<Query>(args_, list_, kv_head_, row)[i % args_.dim]);
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
  const int rows_;          // queries of the group
  const int rows_at_once_;  // in shared memory
};

}  // namespace weft::ops
