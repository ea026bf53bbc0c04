// A work item while it is worked on: everything that the ways through its tiles share.
#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

int tile_tokens(long long bytes_per_token) {
  constexpr int kMinTokens = 32;
  // Second-level caches are of 1 MiB and more beside 512-bit vectors.
  constexpr long long kTileBytes = kRegisters == 32 ? 256 << 10 : 128 << 10;
  int tokens = kMostTokens;
  while (tokens > kMinTokens && tokens * bytes_per_token > kTileBytes) tokens /= 2;
  return tokens;
}

Item::Item(const UnitView& of, const ItemSizes& sizes, Arena& arena)
    : unit(of),
      tokens(sizes.tokens),
      seen(arena.allocate<Seen>(unit.num_rows)),
      states(unit, seen, sizes.ld_o, arena),
      columns(unit, seen, tokens, arena),
      key_rows(unit, unit.args.k, unit.args.head_dim_qk, sizes.join_rows, tokens, arena),
      own_value_rows(unit, unit.args.v, unit.args.head_dim_vo, false, unit.args.v_is_k_prefix ? 0 : tokens, arena),
      hook_buffers(unit, tokens, arena),
      keys(unit, {unit.args.k, unit.args.k_scale, unit.args.head_dim_qk, unit.args.leaf->key}, key_rows, columns,
           hook_buffers, tokens, arena),
      values(unit, {unit.args.v, unit.args.v_scale, unit.args.head_dim_vo, unit.args.leaf->value}, value_rows(),
             columns, hook_buffers, tokens, arena),
      scores(states, columns, sizes.scored_heads, sizes.ld_scores, arena),
      non_finite(unit, seen, columns, values, tokens, arena) {}

TileCursor Item::start(const WorkItem& work) {
  for (int r = 0; r < unit.num_rows; ++r)
    seen[r] = seen_by(unit.plan, unit.rows[r].pos, unit.kv_len(unit.rows[r].request));
  states.clear();
  const PageList& list = unit.list;
  const int end = list.len >= 0 ? list.len : unit.kv_len(list.request) - list.first_pos;
  return {unit, seen, work.kv_begin, min_of(work.kv_end, end), tokens};
}

void Item::locate(const KvTile& tile, int stage) {
  key_rows.locate(tile, stage);
  if (!unit.args.v_is_k_prefix) own_value_rows.locate(tile, stage);
  keys.scales.locate(tile, stage);
  values.scales.locate(tile, stage);
}

int Item::prefetch(const KvTile& tile, int stage, Prefetcher& prefetcher) const {
  const Prefetcher::Region of_keys = key_rows.region(tile, stage);
  const Prefetcher::Region of_values =
      unit.args.v_is_k_prefix ? Prefetcher::Region{} : own_value_rows.region(tile, stage);
  prefetcher.add(of_keys, of_values);
  return of_keys.lines() + of_values.lines();
}

void Item::begin(const KvTile& tile, int stage) {
  key_rows.join(tile, stage);
  columns.set(tile);
  keys.scales.gather(tile, stage, columns.marks);
  values.scales.gather(tile, stage, columns.marks);
  non_finite.find(tile, stage);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
