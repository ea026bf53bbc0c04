// Few rows: keys and values as they are stored.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// How far ahead of what is worked on memory is fetched.
constexpr int kLeadBytes = 32 << 10;
constexpr int kInt8Tokens = 64;  // of integers multiplied as such, whose sums are stored once a slice

// Few rows: every KV head of some tokens before the next ones, which is nearly the order of memory in NHD, with memory a
// little ahead on its way. Where heads do not lie side by side, head by head.
void Item::attend_direct() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo;
  const Source all_keys = keys(), all_values = values();
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    load_query(first + h, b_.query_vectors + h * rows, b_.query);
    if (b_.int8_keys) {
      split_queries(b_.query, h * rows);
      continue;
    }
    const int per_word = args_.compute_bf16 ? 2 : 1;
    pack_direct_query(b_.query, dqk / per_word, rows, dqk / per_word, loader_of(all_keys).halves_of_keys, dqk,
                      b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk));
  }
  if (b_.int8_values) __builtin_memset(b_.value_sums, 0, static_cast<unsigned long>(b_.states * b_.ld_o) * sizeof(int));
  TileCursor cursor = tiles();
  KvTile tile, next;
  Prefetcher prefetcher;
  int stage = 0;
  const auto find = [&](const KvTile& found, int to) {
    locate(found, first, to);
    fetch_beside(found, to, prefetcher);
  };
  bool more = cursor.next(tile);
  if (more) {
    find(tile, stage);
    locate_scales(tile, first, stage);
  }
  // Calls work(head, token, n) for each slice of a side's tokens. Rows of the slice to come are told to the prefetcher; those
  // of a boundary tile are not known yet.
  const auto for_slices = [&](const Source& source, int step, const auto& work) {
    const long long head_stride = source.tokens.head_stride;
    const bool together = head_stride == head_bytes(source);
    const int slices = (tile.n + step - 1) / step, inner = together ? heads : slices;
    const auto head_of = [&](int i) { return together ? i % inner : i / inner; };
    const auto token_of = [&](int i) { return (together ? i / inner : i % inner) * step; };
    prefetcher.set_widening(source.hook ? __builtin_ctz((args_.compute_bf16 ? 16 : 32) / bits_of(args_.kv_element))
                                        : 0);
    for (int i = 0; i < slices * heads; ++i) {
      const int h = head_of(i), t = token_of(i), n = min_of(step, tile.n - t);
      const int next_h = head_of(i + 1), next_t = token_of(i + 1);
      const bool as_long = i + 1 < slices * heads && tile.n - next_t >= n && !tile.boundary;
      prefetcher.next = as_long ? Prefetcher::Next{next_t - t, (next_h - h) * head_stride} : Prefetcher::Next{};
      if (more && h == 0) fetch_scales(source, t, min_of(t + step, next.n), 1 - stage);
      work(h, t, n);
    }
  };
  const bool int8 = b_.int8_keys || b_.int8_values;
  const int row_tiles = (rows + kMostDirectRows - 1) / kMostDirectRows;
  const int in_slice = static_cast<int>(row_tiles * kSliceBytes / head_bytes(all_keys)) / kSliceTokens * kSliceTokens;
  const int few = int8 ? kInt8Tokens : min_of(max_of(in_slice, kSliceTokens), 4 * kSliceTokens);
  const long long lead = kLeadBytes + (int8 ? few * heads * head_bytes(all_keys) : 0);
  if (more)
    for (long long line = 0; line < lead / 64; ++line) prefetcher.fetch(1);
  while (more) {
    more = cursor.next(next);
    if (more) {
      find(next, 1 - stage);
      locate_scales(next, first, 1 - stage);
    }
    place(tile);
    gather_scales(tile, heads, stage);
    find_non_finite(tile, stage, heads);
    for_slices(all_keys, few, [&](int h, int t, int n) {
      const Side keys = side(all_keys, {tile, stage, h, t, n, prefetcher.next});
      if (b_.int8_keys) {
        multiply_int8_keys(keys, t, n, h, prefetcher);
        return;
      }
      keys.loader->dot(keys.rows + t, keys.offset, round_up(n, kSliceTokens), prefetcher,
                       b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk), rows, dqk,
                       b_.scores + static_cast<long long>(h) * rows * b_.ld_scores + t);
    });
    if (!b_.int8_keys)
      for (int h = 0; h < heads; ++h) scale_columns(tile, all_keys, h, h * rows);
    score(tile, 0, b_.states);
    if (b_.int8_values) {
      for (int h = 0; h < heads; ++h) split_probs(tile, h);
    } else {
      for (int h = 0; h < heads; ++h) scale_columns(tile, all_values, h, h * rows);
      for (int state = 0; state < b_.states; ++state)
        if (b_.alpha[state] != 1) scale_vector(b_.o + state * b_.ld_o, b_.ld_o, b_.alpha[state]);
    }
    for_slices(all_values, few, [&](int h, int t, int n) {
      const Side values = contained(all_values, {tile, stage, h, t, n, prefetcher.next});
      if (b_.int8_values) {
        multiply_int8_values(values, t, n, h, prefetcher);
        return;
      }
      values.loader->accumulate(values.rows + t, values.offset, n, prefetcher,
                                probs_at(static_cast<long long>(h) * rows, t), rows, dvo,
                                b_.o + static_cast<long long>(h) * rows * b_.ld_o, b_.ld_o);
    });
    if (b_.int8_values) add_int8_sums();
    for (int h = 0; h < heads; ++h) add_non_finite(tile, stage, h);
    tile = next;
    stage = 1 - stage;
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
