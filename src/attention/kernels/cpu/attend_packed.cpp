// Many rows: keys and values packed once a tile.
#include "attention/kernels/cpu/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Many rows: keys and values are packed once a tile, and both products run at the machine's arithmetic rate.
void Item::attend_packed(int head) {
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo, rows = b_.group_rows;
  const int per_unit = args_.compute_bf16 ? 2 : 1;
  start(head, 1);
  load_query(head, b_.query_vectors);
  if (b_.key_digits) make_query_digits(0);
  Ahead nothing;
  TileCursor cursor = tiles();
  for (KvTile tile; cursor.next(tile);) {
    locate(tile, head, 0);
    locate_scales(tile, head, 0);
    place(tile);
    gather_scales(tile, 1, 0);
    const int padded = round_up(tile.n, kColumnStep);
    const Side keys = side(tile, this->keys(), b_.key_rows[0], head, head, 0, tile.n, 0);
    if (b_.key_digits) {
      multiply_key_digits(keys, 0, tile.n, 0, nothing);
    } else {
      keys.loader->pack_keys(keys.rows, keys.offset, padded, dqk, b_.keys);
      multiply({.a = b_.query,
                .lda = dqk / per_unit,
                .a_stride = 0,
                .b = b_.keys,
                .stride = panel_stride(dqk / per_unit),
                .units = dqk / per_unit,
                .c = b_.scores,
                .ldc = b_.ld_scores,
                .alpha = nullptr,
                .rows = rows,
                .vectors = padded / kLanes},
               args_.compute_bf16);
      scale_columns(tile, this->keys(), head, head, 0);
    }
    score(tile);
    const Side values = side(tile, this->values(), b_.value_rows[0], head, head, 0, tile.n, 0);
    if (b_.value_digits) {
      make_prob_digits(tile, 0);
      multiply_value_digits(values, 0, tile.n, 0, nothing);
      continue;
    }
    scale_columns(tile, this->values(), head, head, 0);
    values.loader->pack_values(values.rows, values.offset, padded, dvo, b_.values);
    multiply_values(tile);
  }
  finish(head, 1);
}

// O = alpha O + P V of a tile, values packed.
void Item::multiply_values(const KvTile& tile, Ahead* ahead, int ahead_lines) {
  const int per_unit = args_.compute_bf16 ? 2 : 1;
  multiply({.a = args_.compute_bf16 ? reinterpret_cast<const float*>(b_.probs) : b_.scores,
            .lda = b_.ld_scores / per_unit,
            .a_stride = 0,
            .b = b_.values,
            .stride = panel_stride(round_up(tile.n, kColumnStep) / per_unit),
            .units = (tile.n + per_unit - 1) / per_unit,
            .c = b_.o,
            .ldc = b_.ld_o,
            .alpha = b_.alpha,
            .rows = b_.group_rows,
            .vectors = static_cast<int>(b_.ld_o / kLanes),
            .ahead = ahead,
            .ahead_lines = ahead_lines},
           args_.compute_bf16);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
