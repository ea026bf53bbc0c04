// Few rows: keys and values as they are stored.
#pragma once

#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Every KV head of a slice of tokens before the next slice, which is nearly the order of memory in NHD, with memory a
// little ahead on its way. Where heads do not lie side by side, head by head.
template <class Keys, class Values>
class AttendDirect {
 public:
  AttendDirect(const UnitView& unit, Arena& arena)
      : item(unit, sizes(unit), arena), keys_(item, arena), values_(item, arena) {}

  void attend(const WorkItem& work) {
    TileCursor cursor = item.start(work);
    keys_.load_queries();
    Prefetcher prefetcher;
    KvTile tile, next;
    int stage = 0;
    bool more = cursor.next(tile);
    if (!more) return;
    item.locate(tile, stage);
    item.prefetch(tile, stage, prefetcher);
    prefetcher.fetch_each(static_cast<int>(Keys::lead_bytes(item.unit) / 64));
    for (; more; tile = next, stage = 1 - stage) {
      more = cursor.next(next);
      if (more) {
        item.locate(next, 1 - stage);
        item.prefetch(next, 1 - stage, prefetcher);
      }
      attend(tile, stage, more ? next.n : 0, prefetcher);
    }
  }

  void order(float* o, long long rows) const { values_.order(o, rows); }

  Item item;

 private:
  static ItemSizes sizes(const UnitView& unit) {
    const AttendArgs& args = unit.args;
    const int dims = args.head_dim_qk + (args.v_is_k_prefix ? 0 : args.head_dim_vo);
    return {.tokens = tile_tokens(static_cast<long long>(dims) * bits_of(args.kv_element) / 8 * unit.heads),
            .ld_o = Values::columns(args),
            .scored_heads = unit.heads,
            .ld_scores = kDirectLd,
            .join_rows = args.rope_dim > 0};
  }

  // next_tokens: of the tile that is fetched meanwhile.
  void attend(const KvTile& tile, int stage, int next_tokens, Prefetcher& prefetcher) {
    const int heads = item.unit.heads;
    item.begin(tile, stage);
    for_slices(item.keys, Keys::slice_tokens(item.unit), tile, stage, next_tokens, prefetcher,
               [&](const Slice& slice) { keys_.multiply(slice, prefetcher); });
    item.scores.to_probabilities(tile, 0, heads);
    for (int head = 0; head < heads; ++head) values_.prepare(tile, head);
    for_slices(item.values, Values::slice_tokens(item.unit), tile, stage, next_tokens, prefetcher,
               [&](const Slice& slice) { values_.multiply(slice, prefetcher); });
    for (int head = 0; head < heads; ++head) {
      values_.finish(head);
      add_non_finite(item, values_, tile, stage, head);
    }
  }

  // Calls work(slice) for each slice of a tile and head. Rows of the slice to come are told to the prefetcher; those of
  // a boundary tile are not known yet.
  template <class Work>
  void for_slices(const KvSource& source, int step, const KvTile& tile, int stage, int next_tokens,
                  Prefetcher& prefetcher, const Work& work) {
    const int heads = item.unit.heads, slices = (tile.n + step - 1) / step;
    const bool together = source.head_stride() == source.head_bytes();
    const auto head_of = [&](int i) { return together ? i % heads : i / slices; };
    const auto token_of = [&](int i) { return (together ? i / heads : i % slices) * step; };
    prefetcher.set_widening(source.widening());
    for (int i = 0; i < slices * heads; ++i) {
      const int head = head_of(i), begin = token_of(i), n = min_of(step, tile.n - begin);
      const int next_head = head_of(i + 1), next_begin = token_of(i + 1);
      const bool as_long = i + 1 < slices * heads && tile.n - next_begin >= n && !tile.boundary;
      prefetcher.next = as_long ? Prefetcher::Next{next_begin - begin, (next_head - head) * source.head_stride()}
                                : Prefetcher::Next{};
      if (head == 0) source.scales.fetch(begin, min_of(begin + step, next_tokens), 1 - stage);
      work({tile, stage, head, begin, n});
    }
  }

  Keys keys_;
  Values values_;
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
