// Few rows: keys and values as they are stored.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// How far ahead of what is worked on memory is fetched.
constexpr int kLeadBytes = 32 << 10;
constexpr int kDigitTokens = 64;  // of integers multiplied as such, whose sums are stored once a block

// Few rows: every KV head of some tokens before the next ones, which is nearly the order of memory in NHD, with memory a
// little ahead on its way. Where heads do not lie side by side, head by head.
void Item::attend_direct() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo;
  const Source all_keys = keys(), all_values = values();
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    load_query(first + h, b_.query_vectors + h * rows, b_.query);
    if (b_.key_digits) {
      make_query_digits(b_.query, h * rows);
      continue;
    }
    const int per_unit = args_.compute_bf16 ? 2 : 1;
    pack_direct_query(b_.query, dqk / per_unit, rows, dqk / per_unit, loader_of(all_keys).halves_of_keys, dqk,
                      b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk));
  }
  if (b_.value_digits)
    __builtin_memset(b_.value_sums, 0, static_cast<unsigned long>(b_.states * b_.ld_o) * sizeof(int));
  TileCursor cursor = tiles();
  KvTile tile, next;
  Ahead ahead;
  int which = 0;
  const auto find = [&](const KvTile& found, int to) {
    locate(found, first, to);
    fetch_beside(found, to, ahead);
  };
  bool more = cursor.next(tile);
  if (more) {
    find(tile, which);
    locate_scales(tile, first, which);
  }
  // Calls work(head, token, n) for each block of a side's tokens. Rows of the block to come are told to `ahead`; those
  // of a boundary tile are not known yet.
  const auto for_blocks = [&](const Source& source, int block, const auto& work) {
    const long long head_stride = source.tokens.head_stride;
    const bool together = head_stride == head_bytes(source);
    const int blocks = (tile.n + block - 1) / block, inner = together ? heads : blocks;
    const auto head_of = [&](int i) { return together ? i % inner : i / inner; };
    const auto token_of = [&](int i) { return (together ? i / inner : i % inner) * block; };
    ahead.widen(source.hook ? __builtin_ctz((args_.compute_bf16 ? 16 : 32) / bits_of(args_.kv_element)) : 0);
    for (int i = 0; i < blocks * heads; ++i) {
      const int h = head_of(i), t = token_of(i), n = min_of(block, tile.n - t);
      const int next_h = head_of(i + 1), next_t = token_of(i + 1);
      const bool as_long = i + 1 < blocks * heads && tile.n - next_t >= n && !tile.boundary;
      ahead.next = as_long ? Ahead::Next{next_t - t, (next_h - h) * head_stride} : Ahead::Next{};
      if (more && h == 0) fetch_scales(source, t, min_of(t + block, next.n), 1 - which);
      work(h, t, n);
    }
  };
  const bool digits = b_.key_digits || b_.value_digits;
  const int row_blocks = (rows + kDirectBlock - 1) / kDirectBlock;
  const int in_block = static_cast<int>(row_blocks * kBlockBytes / head_bytes(all_keys)) / kBlockTokens * kBlockTokens;
  const int few = digits ? kDigitTokens : min_of(max_of(in_block, kBlockTokens), 4 * kBlockTokens);
  const long long lead = kLeadBytes + (digits ? few * heads * head_bytes(all_keys) : 0);
  if (more)
    for (long long line = 0; line < lead / 64; ++line) ahead.fetch(1);
  while (more) {
    more = cursor.next(next);
    if (more) {
      find(next, 1 - which);
      locate_scales(next, first, 1 - which);
    }
    place(tile);
    gather_scales(tile, heads, which);
    find_non_finite(tile, which, heads);
    for_blocks(all_keys, few, [&](int h, int t, int n) {
      const Side keys = side(all_keys, {tile, which, h, t, n, ahead.next});
      if (b_.key_digits) {
        multiply_key_digits(keys, t, n, h, ahead);
        return;
      }
      keys.loader->dot(keys.rows + t, keys.offset, round_up(n, kBlockTokens), ahead,
                       b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk), rows, dqk,
                       b_.scores + static_cast<long long>(h) * rows * b_.ld_scores + t);
    });
    if (!b_.key_digits)
      for (int h = 0; h < heads; ++h) scale_columns(tile, all_keys, h, h * rows);
    score(tile, 0, b_.states);
    if (b_.value_digits) {
      for (int h = 0; h < heads; ++h) make_prob_digits(tile, h);
    } else {
      for (int h = 0; h < heads; ++h) scale_columns(tile, all_values, h, h * rows);
      for (int state = 0; state < b_.states; ++state)
        if (b_.alpha[state] != 1) scale_vector(b_.o + state * b_.ld_o, b_.ld_o, b_.alpha[state]);
    }
    for_blocks(all_values, few, [&](int h, int t, int n) {
      const Side values = contained(all_values, {tile, which, h, t, n, ahead.next});
      if (b_.value_digits) {
        multiply_value_digits(values, t, n, h, ahead);
        return;
      }
      values.loader->accumulate(values.rows + t, values.offset, n, ahead, probs_at(static_cast<long long>(h) * rows, t),
                                rows, dvo, b_.o + static_cast<long long>(h) * rows * b_.ld_o, b_.ld_o);
    });
    if (b_.value_digits) add_value_sums();
    for (int h = 0; h < heads; ++h) add_non_finite(tile, which, h);
    tile = next;
    which = 1 - which;
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
