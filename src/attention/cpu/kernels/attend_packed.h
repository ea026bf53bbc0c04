// Many rows: keys and values packed once a tile.
#pragma once

#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Both products run at the machine's arithmetic rate. A tile is worked on head by head; what comes from memory is
// fetched meanwhile, a tile ahead.
template <class Keys, class Values>
class AttendPacked {
 public:
  AttendPacked(const UnitView& unit, Arena& arena)
      : item(unit, sizes(unit), arena), keys_(item, arena), values_(item, arena) {}

  void attend(const WorkItem& work) {
    TileCursor cursor = item.start(work);
    keys_.load_queries();
    [[maybe_unused]] const TilesInUse tiles(item.unit.args);
    Prefetcher prefetcher;
    KvTile tile, next;
    int stage = 0;
    bool more = cursor.next(tile);
    if (more) item.locate(tile, stage);
    for (; more; tile = next, stage = 1 - stage) {
      more = cursor.next(next);
      if (more) item.locate(next, 1 - stage);
      if (more && item.unit.unit.tile_kind == TileKind::streamed)
        prefetcher.spread(item.prefetch(next, 1 - stage, prefetcher), register_tiles(tile));
      else
        prefetcher.spread(0, 1);
      item.begin(tile, stage);
      for (int head = 0; head < item.unit.heads; ++head) attend({tile, stage, head, 0, tile.n}, prefetcher);
    }
  }

  void order(float* o, long long rows) const { values_.order(o, rows); }

  Item item;

 private:
  static ItemSizes sizes(const UnitView& unit) {
    const AttendArgs& args = unit.args;
    const int dims = args.head_dim_qk + (args.v_is_k_prefix ? 0 : args.head_dim_vo);
    const int tokens = tile_tokens(static_cast<long long>(dims) * (args.compute == Compute::bf16 ? 2 : 4));
    return {.tokens = tokens,
            .ld_o = Values::columns(args),
            .scored_heads = 1,
            .ld_scores = tokens,
            .join_rows = args.rope_dim > 0};
  }

  // One head of a tile.
  void attend(const Slice& slice, Prefetcher& prefetcher) {
    keys_.multiply(slice, prefetcher);
    item.scores.to_probabilities(slice.tile, slice.head, 1);
    values_.prepare(slice.tile, slice.head);
    values_.multiply(slice, prefetcher);
    values_.finish(slice.head);
    add_non_finite(item, values_, slice.tile, slice.stage, slice.head);
  }

  // Of both products of all heads.
  int register_tiles(const KvTile& tile) const {
    const int rows = item.unit.group_rows, elements = per_word(item.unit.args);
    const int panels = (tile.n + kPanel - 1) / kPanel;
    return item.unit.heads * (num_register_tiles(rows, item.keys.dim() / elements, kPanel / kLanes) * panels +
                              num_register_tiles(rows, tile.n / elements, static_cast<int>(item.states.ld_o / kLanes)));
  }

  Keys keys_;
  Values values_;
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
