// Many rows: keys and values packed once a tile.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Many rows: keys and values are packed once a tile, and both products run at the machine's arithmetic rate. A tile is
// worked on head by head; what comes from memory is fetched meanwhile, a tile ahead.
void Item::attend_packed() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, per_unit = args_.compute_bf16 ? 2 : 1;
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    float* query = query_of(h);
    load_query(first + h, b_.query_vectors + h * rows, query);
    if (b_.key_digits) make_query_digits(query, h * rows);
  }
  TileCursor cursor = tiles();
  KvTile tile, next;
  Ahead ahead;
  int which = 0;
  bool more = cursor.next(tile);
  if (more) locate(tile, first, which);
  for (; more; tile = next, which = 1 - which) {
    more = cursor.next(next);
    if (more) locate(next, first, 1 - which);
    int ahead_lines = 0;  // beside each block of rows
    if (more && b_.streamed) {
      const int key_blocks = num_blocks(rows, dqk / per_unit, 2) * ((tile.n + kPanel - 1) / kPanel),
                value_blocks = num_blocks(rows, tile.n / per_unit, static_cast<int>(b_.ld_o / kLanes));
      const int lines = fetch_beside(next, 1 - which, ahead);
      ahead_lines = lines / (heads * (key_blocks + value_blocks)) + 1;
    }
    locate_scales(tile, first, which);
    place(tile);
    gather_scales(tile, heads, which);
    find_non_finite(tile, which, heads);
    for (int h = 0; h < heads; ++h) attend_packed(tile, h, which, ahead, ahead_lines);
  }
}

// One head of a tile. A panel of keys is multiplied as soon as it is packed, from the first-level cache.
void Item::attend_packed(const KvTile& tile, int h, int which, Ahead& ahead, int ahead_lines) {
  const int rows = b_.group_rows, first_state = h * rows;
  const int dqk = args_.head_dim_qk, per_unit = args_.compute_bf16 ? 2 : 1, padded = round_up(tile.n, kColumnStep);
  const Side some_keys = side(keys(), {tile, which, h, 0, tile.n});
  if (b_.key_digits) {
    multiply_key_digits(some_keys, 0, tile.n, h, ahead);
  } else {
    for (int t = 0; t < padded; t += kPanel) {
      some_keys.loader->pack_keys(some_keys.rows + t, some_keys.offset, kPanel, dqk, b_.keys);
      multiply({.a = query_of(h),
                .lda = dqk / per_unit,
                .a_stride = 0,
                .b = b_.keys,
                .stride = 0,
                .units = dqk / per_unit,
                .c = b_.scores + t,
                .ldc = b_.ld_scores,
                .alpha = nullptr,
                .rows = rows,
                .vectors = kPanel / kLanes,
                .ahead = &ahead,
                .ahead_lines = ahead_lines},
               args_.compute_bf16);
    }
    scale_columns(tile, keys(), h, 0);
  }
  score(tile, first_state, rows);
  const Side some_values = contained(values(), {tile, which, h, 0, tile.n});
  if (b_.value_digits) {
    make_prob_digits(tile, h);
    multiply_value_digits(some_values, 0, tile.n, h, ahead);
  } else {
    scale_columns(tile, values(), h, 0);
    some_values.loader->pack_values(some_values.rows, some_values.offset, padded, args_.head_dim_vo, b_.values);
    multiply_values(tile, first_state, ahead, ahead_lines);
  }
  add_non_finite(tile, which, h);
}

// O = alpha O + P V of a tile and these states, values packed.
void Item::multiply_values(const KvTile& tile, int first_state, Ahead& ahead, int ahead_lines) {
  const int per_unit = args_.compute_bf16 ? 2 : 1;
  multiply({.a = probs_at(0, 0),
            .lda = b_.ld_scores / per_unit,
            .a_stride = 0,
            .b = b_.values,
            .stride = panel_stride(round_up(tile.n, kColumnStep) / per_unit),
            .units = (tile.n + per_unit - 1) / per_unit,
            .c = b_.o + first_state * b_.ld_o,
            .ldc = b_.ld_o,
            .alpha = b_.alpha + first_state,
            .rows = b_.group_rows,
            .vectors = static_cast<int>(b_.ld_o / kLanes),
            .ahead = &ahead,
            .ahead_lines = ahead_lines},
           args_.compute_bf16);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
