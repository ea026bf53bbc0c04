// Many rows: keys and values packed once a tile.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Many rows: keys and values are packed once a tile, and both products run at the machine's arithmetic rate. A tile is
// worked on head by head; what comes from memory is fetched meanwhile, a tile prefetcher.
void Item::attend_packed() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, per_word = args_.compute_bf16 ? 2 : 1;
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    float* query = query_of(h);
    load_query(first + h, b_.query_vectors + h * rows, query);
    if (b_.int8_keys) split_queries(query, h * rows);
  }
  TileCursor cursor = tiles();
  KvTile tile, next;
  Prefetcher prefetcher;
  int stage = 0;
  bool more = cursor.next(tile);
  if (more) locate(tile, first, stage);
  for (; more; tile = next, stage = 1 - stage) {
    more = cursor.next(next);
    if (more) locate(next, first, 1 - stage);
    int prefetch_lines = 0;  // beside each tile of registers
    if (more && b_.streamed) {
      const int key_tiles = num_micro_tiles(rows, dqk / per_word, 2) * ((tile.n + kPanel - 1) / kPanel),
                value_tiles = num_micro_tiles(rows, tile.n / per_word, static_cast<int>(b_.ld_o / kLanes));
      const int lines = fetch_beside(next, 1 - stage, prefetcher);
      prefetch_lines = lines / (heads * (key_tiles + value_tiles)) + 1;
    }
    locate_scales(tile, first, stage);
    place(tile);
    gather_scales(tile, heads, stage);
    find_non_finite(tile, stage, heads);
    for (int h = 0; h < heads; ++h) attend_packed(tile, h, stage, prefetcher, prefetch_lines);
  }
}

// One head of a tile. A panel of keys is multiplied as soon as it is packed, from the first-level cache.
void Item::attend_packed(const KvTile& tile, int h, int stage, Prefetcher& prefetcher, int prefetch_lines) {
  const int rows = b_.group_rows, first_state = h * rows;
  const int dqk = args_.head_dim_qk, per_word = args_.compute_bf16 ? 2 : 1, padded = round_up(tile.n, kColumnStep);
  const Side some_keys = side(keys(), {tile, stage, h, 0, tile.n});
  if (b_.int8_keys) {
    multiply_int8_keys(some_keys, 0, tile.n, h, prefetcher);
  } else {
    for (int t = 0; t < padded; t += kPanel) {
      some_keys.loader->pack_keys(some_keys.rows + t, some_keys.offset, kPanel, dqk, b_.keys);
      multiply({.a = query_of(h),
                .lda = dqk / per_word,
                .a_stride = 0,
                .b = b_.keys,
                .stride = 0,
                .words = dqk / per_word,
                .c = b_.scores + t,
                .ldc = b_.ld_scores,
                .alpha = nullptr,
                .rows = rows,
                .vectors = kPanel / kLanes,
                .prefetcher = &prefetcher,
                .prefetch_lines = prefetch_lines},
               args_.compute_bf16);
    }
    scale_columns(tile, keys(), h, 0);
  }
  score(tile, first_state, rows);
  const Side some_values = contained(values(), {tile, stage, h, 0, tile.n});
  if (b_.int8_values) {
    split_probs(tile, h);
    multiply_int8_values(some_values, 0, tile.n, h, prefetcher);
  } else {
    scale_columns(tile, values(), h, 0);
    some_values.loader->pack_values(some_values.rows, some_values.offset, padded, args_.head_dim_vo, b_.values);
    multiply_values(tile, first_state, prefetcher, prefetch_lines);
  }
  add_non_finite(tile, stage, h);
}

// O = alpha O + P V of a tile and these states, values packed.
void Item::multiply_values(const KvTile& tile, int first_state, Prefetcher& prefetcher, int prefetch_lines) {
  const int per_word = args_.compute_bf16 ? 2 : 1;
  multiply({.a = probs_at(0, 0),
            .lda = b_.ld_scores / per_word,
            .a_stride = 0,
            .b = b_.values,
            .stride = panel_stride(round_up(tile.n, kColumnStep) / per_word),
            .words = (tile.n + per_word - 1) / per_word,
            .c = b_.o + first_state * b_.ld_o,
            .ldc = b_.ld_o,
            .alpha = b_.alpha + first_state,
            .rows = b_.group_rows,
            .vectors = static_cast<int>(b_.ld_o / kLanes),
            .prefetcher = &prefetcher,
            .prefetch_lines = prefetch_lines},
           args_.compute_bf16);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
