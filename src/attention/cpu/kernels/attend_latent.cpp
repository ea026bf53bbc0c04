// Many rows over latent keys and values.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Queries as the right side of a product: panels of fused rows.
void Item::pack_queries() {
  const long long row_bytes = static_cast<long long>(args_.head_dim_qk) * (args_.compute_bf16 ? 2 : 4);
  for (int first = 0; first < b_.ld_by_token; first += kLanes) {
    const char* rows[kLanes];
    for (int i = 0; i < kLanes; ++i)
      rows[i] = first + i < b_.group_rows ? reinterpret_cast<const char*>(b_.query) + (first + i) * row_bytes : kZeros;
    const int per_word = args_.compute_bf16 ? 2 : 1;
    float* panel = b_.query_panels + first / kPanel * panel_stride(args_.head_dim_qk / per_word) + first % kPanel;
    (args_.compute_bf16 ? stored_ : transformed_).pack_keys(rows, 0, kLanes, args_.head_dim_qk, panel);
  }
}

// Latent rows are keys and, up to head_dim_vo, values of many queries. Their scores are computed token by token, with
// the queries on the right, so that a row packed for P V is a left side as it stands: it is read and packed once. Pairs
// of bf16 run along a key's elements, and along tokens in values: there the joined rows are the left side.
void Item::attend_latent() {
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo, rows = b_.group_rows;
  const bool bf16 = args_.compute_bf16 != 0;
  const int per_word = bf16 ? 2 : 1;
  start(unit_.kv_head_begin, 1);
  load_query(unit_.kv_head_begin, b_.query_vectors, b_.query);
  pack_queries();
  const int score_vectors = static_cast<int>(b_.ld_by_token / kLanes),
            value_vectors = static_cast<int>(b_.ld_o / kLanes);
  TileCursor cursor = tiles();
  KvTile tile, next;
  for (bool more = cursor.next(tile); more; tile = next) {
    locate(tile, 0, 0);
    place(tile);
    more = cursor.next(next);
    const int padded = round_up(tile.n, kColumnStep);
    // The next tile is on its way meanwhile.
    if (more) locate_tokens(args_, list_, args_.k, 0, next.begin, next.n, b_.key_rows[1]);
    Prefetcher prefetcher;
    const int lines = more ? fetch_beside(next, 1, prefetcher) : 0;
    const int micro_tiles =
        num_micro_tiles(tile.n, dqk / per_word, score_vectors) + num_micro_tiles(rows, tile.n, value_vectors);
    const int prefetch_lines = (lines + micro_tiles - 1) / micro_tiles;
    const Side latent = as_stored(tile, b_.key_rows[0], 0, 0, tile.n);
    latent.loader->pack_values(latent.rows, latent.offset, padded, bf16 ? dvo : dqk, b_.values);
    multiply({.a = bf16 ? reinterpret_cast<const float*>(b_.joined[0]) : b_.values,
              .lda = bf16 ? dqk / 2 : kPanel,
              .a_stride = bf16 ? 0 : panel_stride(padded),
              .b = b_.query_panels,
              .stride = panel_stride(dqk / per_word),
              .words = dqk / per_word,
              .c = b_.by_token,
              .ldc = b_.ld_by_token,
              .alpha = nullptr,
              .rows = tile.n,
              .vectors = score_vectors,
              .prefetcher = &prefetcher,
              .prefetch_lines = prefetch_lines},
             bf16);
    transpose_scores(b_.by_token, b_.ld_by_token, rows, padded, b_.scores, b_.ld_scores);
    score(tile, 0, rows);
    if (contains(tile)) {  // the keys' products have taken what is not finite
      find_non_finite(tile, 0, 1);
      const Side some_values = contained(values(), {tile, 0, 0, 0, tile.n});
      some_values.loader->pack_values(some_values.rows, some_values.offset, padded, dvo, b_.values);
    }
    multiply_values(tile, 0, prefetcher, prefetch_lines);
    add_non_finite(tile, 0, 0);
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
