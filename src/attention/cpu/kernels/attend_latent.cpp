// Many rows over latent keys and values.
#include "attention/cpu/kernels/attend_latent.h"

#include "attention/cpu/kernels/products.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

ItemSizes sizes(const UnitView& unit) {
  const AttendArgs& args = unit.args;
  const bool bf16 = args.compute == Compute::bf16;
  // A tile holds keys alone, and gets twice the room: each tile is a pass over all of o.
  const int tokens = tile_tokens(static_cast<long long>(args.head_dim_qk / 2) * (bf16 ? 2 : 4));
  return {.tokens = tokens,
          .ld_o = round_up(args.head_dim_vo, kPanel),
          .scored_heads = 1,
          .ld_scores = tokens,
          .join_rows = bf16 || args.rope_dim > 0};
}

}  // namespace

AttendLatent::AttendLatent(const UnitView& unit, Arena& arena)
    : item(unit, sizes(unit), arena), query_vectors_((unit.group_rows + kLanes - 1) / kLanes) {
  const int dim = unit.args.head_dim_qk;
  queries_ = arena.allocate<float>(static_cast<long long>(unit.states) * dim);
  query_panels_ = arena.allocate<float>(round_up(unit.group_rows, kPanel) / kPanel * panel_stride(dim));
  by_token_ = arena.allocate<float>(static_cast<long long>(item.tokens) * query_vectors_ * kLanes);
  rows_ = arena.allocate<float>(round_up(dim, kPanel) / kPanel * panel_stride(item.tokens));
}

void AttendLatent::attend(const WorkItem& work) {
  TileCursor cursor = item.start(work);
  load_queries(item.states, 0, queries_);
  pack_queries();
  [[maybe_unused]] const TilesInUse tiles_in_use(item.unit.args);
  Prefetcher prefetcher;
  KvTile tile, next;
  int stage = 0;
  bool more = cursor.next(tile);
  if (more) item.locate(tile, stage);
  for (; more; tile = next, stage = 1 - stage) {
    more = cursor.next(next);
    item.begin(tile, stage);
    const int words = item.unit.args.head_dim_qk / per_word(item.unit.args);
    const int tiles = num_register_tiles(tile.n, words, query_vectors_) +
                      num_register_tiles(item.unit.group_rows, tile.n, static_cast<int>(item.states.ld_o / kLanes));
    if (more) item.locate(next, 1 - stage);
    prefetcher.spread(more ? item.prefetch(next, 1 - stage, prefetcher) : 0, tiles);
    attend({tile, stage, 0, 0, tile.n}, prefetcher);
  }
}

void AttendLatent::attend(const Slice& latent, Prefetcher& prefetcher) {
  const KvTile& tile = latent.tile;
  multiply_keys(latent, prefetcher);
  transpose_scores(by_token_, query_vectors_ * kLanes, item.unit.group_rows, round_up(tile.n, abi::kColumnStep),
                   item.scores.of(0), item.scores.ld());
  item.scores.to_probabilities(tile, 0, 1);
  if (item.non_finite.contains(tile)) {  // the keys' products have taken what is not finite
    const KvSource::Rows values = item.non_finite.rows(latent);
    item.values.loader().pack_values(values.at, values.offset, round_up(tile.n, abi::kColumnStep), item.values.dim(),
                                     rows_);
  }
  multiply_packed_values(item, tile, 0, rows_, prefetcher);
  add_non_finite(item, *this, tile, latent.stage, 0);
}

// Queries as the right side of a product: panels of fused rows.
void AttendLatent::pack_queries() {
  const AttendArgs& args = item.unit.args;
  const bool bf16 = args.compute == Compute::bf16;
  const int dim = args.head_dim_qk, words = dim / per_word(args);
  const Loader& loader = loader_for(bf16 ? args.kv_element : Element::fp32, bf16);
  for (int first = 0; first < query_vectors_ * kLanes; first += kLanes) {
    const char* rows[kLanes];
    for (int i = 0; i < kLanes; ++i)
      rows[i] = first + i < item.unit.group_rows
                    ? reinterpret_cast<const char*>(queries_ + static_cast<long long>(first + i) * words)
                    : kZeros;
    loader.pack_keys(rows, 0, kLanes, dim, query_panels_ + first / kPanel * panel_stride(words) + first % kPanel);
  }
}

// Packs a tile's rows, and multiplies them with the queries.
void AttendLatent::multiply_keys(const Slice& latent, Prefetcher& prefetcher) {
  const AttendArgs& args = item.unit.args;
  const bool bf16 = args.compute == Compute::bf16;
  const int n = latent.n, padded = round_up(n, abi::kColumnStep), dim = args.head_dim_qk, words = dim / per_word(args);
  const KvSource::Rows rows = item.keys.rows(latent);
  item.keys.loader().pack_values(rows.at, rows.offset, padded, bf16 ? args.head_dim_vo : dim, rows_);
  multiply_packed({.a = bf16 ? reinterpret_cast<const float*>(item.key_rows.joined(latent.stage)) : rows_,
                   .lda = bf16 ? words : kPanel,
                   .a_stride = bf16 ? 0 : panel_stride(padded),
                   .b = query_panels_,
                   .stride = panel_stride(words),
                   .words = words,
                   .c = by_token_,
                   .ldc = query_vectors_ * kLanes,
                   .alpha = nullptr,
                   .rows = n,
                   .vectors = query_vectors_},
                  packed_words(args, dim), prefetcher);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
