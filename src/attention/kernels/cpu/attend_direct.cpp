// Few rows: keys and values as they are stored.
#include "attention/kernels/cpu/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// What of the next tile's n tokens is fetched while head h of this one is worked on: in the order of memory, which is
// what the machine's own prefetchers follow.
Ahead Item::next_rows(const TokensView& view, const char* const* rows, int n, int dim, int h) const {
  const int heads = unit_.kv_head_end - unit_.kv_head_begin;
  const int bytes = dim * bits_of(args_.kv_element) / 8;
  if (view.head_stride != bytes) return Ahead(rows, h * view.head_stride, n, bytes);
  const int begin = n * h / heads, end = n * (h + 1) / heads;  // whole tokens, a share of them
  return Ahead(rows + begin, 0, end - begin, bytes * heads);
}

// Few rows: every KV head of a tile before the next tile, so that a token's heads, which lie side by side in NHD, are
// read together; while one tile is worked on, the next one is on its way.
void Item::attend_direct() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo;
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    load_query(first + h, b_.query_vectors + h * rows);
    if (b_.key_digits) {
      make_query_digits(h * rows);
      continue;
    }
    pack_direct_query(b_.query, args_.compute_bf16 ? dqk / 2 : dqk, rows, dqk, args_.compute_bf16,
                      b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk));
  }
  TileCursor cursor = tiles();
  KvTile tile, next;
  int which = 0;
  bool more = cursor.next(tile);
  if (more) {
    locate(tile, first, which);
    locate_scales(tile, first);
  }
  while (more) {
    more = cursor.next(next);
    const int num_next = more ? next.n : 0;
    if (more) locate(next, first, 1 - which);
    place(tile);
    gather_scales(tile, heads);
    if (more) locate_scales(next, first);
    const int padded = round_up(tile.n, kColumnStep);
    for (int h = 0; h < heads; ++h) {
      const Side keys = side(tile, this->keys(), b_.key_rows[which], first, first + h);
      Ahead ahead = next_rows(args_.k, b_.key_rows[1 - which], num_next, dqk, h);
      if (b_.key_digits) {
        multiply_key_digits(tile, keys, first, first + h, h * rows, ahead);
        continue;
      }
      keys.loader->dot(keys.rows, keys.offset, padded, ahead,
                       b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk), rows, dqk,
                       b_.scores + static_cast<long long>(h) * rows * b_.ld_scores);
      scale_columns(tile, this->keys(), first, first + h, h * rows);
    }
    score(tile);
    for (int h = 0; h < heads; ++h) {
      const Side values = side(tile, this->values(), b_.value_rows[which], first, first + h);
      Ahead ahead = next_rows(args_.v, b_.value_rows[1 - which], args_.v_is_k_prefix ? 0 : num_next, dvo, h);
      if (b_.value_digits) {
        multiply_value_digits(tile, values, first, first + h, h * rows, ahead);
        continue;
      }
      scale_columns(tile, this->values(), first, first + h, h * rows);
      values.loader->accumulate(values.rows, values.offset, tile.n, ahead,
                                b_.scores + static_cast<long long>(h) * rows * b_.ld_scores, b_.alpha + h * rows, rows,
                                dvo, b_.o + static_cast<long long>(h) * rows * b_.ld_o, b_.ld_o);
    }
    tile = next;
    which = 1 - which;
  }
  finish(first, heads);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
