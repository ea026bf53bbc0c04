// A work item while it is worked on: everything that the ways through its tiles share.
#pragma once

#include "attention/cpu/kernels/contain.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// What the ways differ in.
struct ItemSizes {
  int tokens;        // of a tile at most
  long long ld_o;    // columns of a state
  int scored_heads;  // whose scores are held at once
  long long ld_scores;
  bool join_rows;  // of latent keys
};

struct Item {
  Item(const UnitView& unit, const ItemSizes& sizes, Arena& arena);

  // Empty states; returns the tiles of keys that its rows see.
  TileCursor start(const WorkItem& work);
  // Finds a tile's rows and their scales.
  void locate(const KvTile& tile, int stage);
  // From here on a tile that was located is fetched, after what was to be fetched before. Returns how many lines that
  // are.
  int prefetch(const KvTile& tile, int stage, Prefetcher& prefetcher) const;
  // From here on this tile is worked on.
  void begin(const KvTile& tile, int stage);

  const UnitView unit;
  const int tokens;
  Seen* seen;  // [query tokens]
  States states;
  Columns columns;
  TileRows key_rows, own_value_rows;
  HookBuffers hook_buffers;
  KvSource keys, values;
  Scores scores;
  NonFinite non_finite;

 private:
  // Latent values are the beginnings of their keys.
  TileRows& value_rows() { return unit.args.v_is_k_prefix ? key_rows : own_value_rows; }
};

// Adds what NonFinite has kept from the products of a head, whose columns of o `way` orders.
template <class Way>
void add_non_finite(Item& item, const Way& way, const KvTile& tile, int stage, int head) {
  if (!item.non_finite.contains(tile)) return;
  alignas(64) float columns[kMaxHeadDim + 2 * kPanel];
  for (int i = 0; i < item.states.ld_o; ++i) columns[i] = static_cast<float>(i);
  way.order(columns, 1);
  item.non_finite.add(tile, stage, head, item.scores, columns, item.states);
}

// Tokens of a tile whose keys and values, so many bytes for each, stay in the second-level cache with the next tile's.
int tile_tokens(long long bytes_per_token);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
