// A tile of attention by a producer (producer.h): 64 rows for each warpgroup that multiplies, and what lies in shared
// memory between these and the warpgroup that loads.
#pragma once

#include "attention/cuda/kernels/mma/logits.h"
#include "tile/cuda/stages.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// kQueryStages: tiles of queries that there is room for. kGathers: rows of keys and values come one by one, and not in
// boxes.
template <class S, class F, int kKeys_, int kQueryStages_, bool kGathers_>
struct Shape : mma::Shape<S, F, 1, 4 * kProducerGroups, 1, kKeys_, false, true> {
  using Base = mma::Shape<S, F, 1, 4 * kProducerGroups, 1, kKeys_, false, true>;
  using Base::kRows, Base::kKeys, Base::kPadQk, Base::kPadVo;
  using H = typename F::OfVariant;
  static constexpr int kGroups = kProducerGroups, kQueryStages = kQueryStages_, kStages = S::kStages;
  static constexpr bool kGathers = kGathers_;
  static constexpr int kLoaders = S::kLoaders, kLoadersBarrier = kMultipliersBarrier - 1;
  static_assert(kPadVo <= kPadQk && kLoaders == 128 && kKeys <= kLoaders);

  // Keys and values of 8 bits become what is multiplied in their stages.
  static constexpr bool kConverts = sizeof(typename S::Cache) == 1;
  static_assert(!kConverts || kGathers);
  static constexpr bool kVectorHooks = H::query_transform || H::key_transform;
  static constexpr int kVectors = kVectorHooks ? kVectorsOfLoaders : 1;
  static constexpr int kVectorFloats = kVectorHooks ? S::kDimQk + kPadOfVectors : kDimWithoutHooks;
  static_assert(!H::key_transform || kGathers);
  // Gathered rows that are multiplied as they lie: copies say themselves that they have landed.
  static constexpr bool kValuesAsCopied = kGathers && !kConverts,
                        kKeysAsCopied = kValuesAsCopied && !H::key_transform && !Base::kTokenScales,
                        kQueriesAsCopied = kValuesAsCopied && !H::query_transform;
  static constexpr ProducerRegisters kRegisters = producer_registers(kConverts, kVectorHooks);
  static constexpr int kScales = Base::kTokenScales ? kTilesOfLogits * kKeys : 1;

  using QueryTile = mma::TileOf<true, 64, kPadQk>;
  using Queries = typename QueryTile::Type;
  using KeyTile = typename Base::KeyTile;
  using ValueTile = typename Base::ValueTile;
  static constexpr int kQueryBytes = kGroups * QueryTile::kBytes;
  static constexpr int kTileBytes = kQueryStages * kQueryBytes + kStages * (KeyTile::kBytes + ValueTile::kBytes);

  // Rows of one KV head of an item, as the loaders found them; no rows: the CTA is done.
  struct Job {
    ItemRecord item;
    int kv_head, first, n;
    u32 number;      // among all jobs of the CTA
    u32 first_step;  // among all tiles of the CTA
    Scales scales;   // of the KV head
    bool ends_item;
    u32 not_finite;  // some value that a row sees is not finite, and zero in its tile
    FusedRow rows[kRows];
    VisibleRange visible;
    Walk<kKeys> walk;
    Tokens<S> tokens;
  };
  static constexpr int kJobs = 2;
  struct Shared {
    Scratch<S> scratch;
    Job jobs[kJobs];
    tile::StageBarriers<kJobs> of_jobs;
    tile::StageBarriers<kQueryStages> of_queries;
    tile::StageBarriers<kStages> of_keys, of_values;
    u64 landed;  // values that are looked at before they are multiplied
    Source<false> sources[kGathers ? kSourcesOfProducer : 1][kGathers ? kKeys : 1];
    ListedTile<S::kBlockSparse ? kKeys : 1> listed[S::kBlockSparse ? kTilesOfLogits : 1];
    Scales scales[kScales];                              // of tokens
    alignas(16) float vectors[kVectors][kVectorFloats];  // that loaders change
    alignas(1024) u8 tiles[kTileBytes];
  };
  static_assert(sizeof(Shared) == producer_shared_bytes({.dim_qk = S::kDimQk,
                                                         .dim_vo = S::kDimVo,
                                                         .threads = S::kThreads,
                                                         .rows = kRows,
                                                         .keys = kKeys,
                                                         .stages = kStages,
                                                         .kv_bits = 16,
                                                         .scales = kScales,
                                                         .is_block_sparse = S::kBlockSparse,
                                                         .by_warpgroup = true},
                                                        kQueryStages, kGathers, kVectorHooks));
  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static Queries queries(int stage, int group) {
    return {shared().tiles + stage * kQueryBytes + group * QueryTile::kBytes};
  }
  WEFT_INLINE static typename Base::Keys keys_of(int stage) {
    return {shared().tiles + kQueryStages * kQueryBytes + stage * KeyTile::kBytes};
  }
  // Of an item that is the first member of its job.
  WEFT_INLINE static const Scales& head_scales(const ItemRecord& item) {
    return reinterpret_cast<const Job&>(item).scales;
  }
  // Of a tile of lists of blocks, among all of the CTA.
  WEFT_INLINE static auto& listed(u32 step) { return shared().listed[step % kTilesOfLogits]; }
  // Of a step's tile, where rows come one by one.
  WEFT_INLINE static Source<false>* sources(int step) { return shared().sources[step % kSourcesOfProducer]; }
  WEFT_INLINE static typename Base::Values values_of(int stage) {
    return {keys_of(kStages).data + stage * ValueTile::kBytes};
  }
};

// Of the tokens of a tile, among all of the CTA.
template <class Shape>
WEFT_INLINE mma::TokenScales<Shape>& scales_of_step(u32 step) {
  return reinterpret_cast<mma::TokenScales<Shape>*>(Shape::shared().scales)[step % kTilesOfLogits];
}

// The rows of a job.
template <class Shape>
struct Rows : mma::RowsOfItem<Shape> {
  using Job = typename Shape::Job;
  const Job& job;

  WEFT_INLINE Rows(const Call& call, const typename Shape::F::P& p, const Job& of)
      : mma::RowsOfItem<Shape>{call, p, of.item, of.kv_head, of.first, of.n}, job(of) {}
  WEFT_INLINE const FusedRow& row(int r) const { return job.rows[r]; }
  WEFT_INLINE const VisibleRange& visible() const { return job.visible; }
  WEFT_INLINE const Walk<Shape::kKeys>& walk() const { return job.walk; }
  // Tiles are walked from the last one on: what is left over when an item ends is seen by all rows, mostly, so that
  // nobody waits for a look at it.
  WEFT_INLINE int tile(int step) const { return job.walk.num_tiles - 1 - step; }
  // Of lists of blocks; a tile's step is counted as a step's tile is.
  WEFT_INLINE auto& listed(int of_tile) const {
    return Shape::listed(job.first_step + static_cast<u32>(tile(of_tile)));
  }
  WEFT_INLINE auto sources(int of_tile) const {
    if constexpr (Shape::S::kBlockSparse)
      return static_cast<const ListedKey*>(listed(of_tile).keys);
    else
      return static_cast<const Source<false>*>(nullptr);
  }
  WEFT_INLINE const mma::TokenScales<Shape>& token_scales(int of_tile) const {
    return scales_of_step<Shape>(job.first_step + static_cast<u32>(tile(of_tile)));
  }
  // Whether all keys of a tile are there, and each row sees each of them.
  WEFT_INLINE bool is_seen_by_all(int of_tile) const {
    if constexpr (Shape::S::kBlockSparse) {
      return has_none(listed(of_tile).not_by_all);
    } else {
      const int at = job.walk.at(of_tile), begin = job.item.first_pos + at;
      // Without a branch.
      const auto all_see = [&](int i) {
        return static_cast<int>(job.visible.all_low[i] <= begin) &
               static_cast<int>(begin + Shape::kKeys <= job.visible.all_high[i]);
      };
      return (static_cast<int>(job.walk.end - at >= Shape::kKeys) & (all_see(0) | all_see(1))) != 0;
    }
  }
  // Whether key `key` of a tile is there, and lies where some row sees keys.
  WEFT_INLINE bool is_seen(int of_tile, int key) const {
    if constexpr (Shape::S::kBlockSparse) {
      return (listed(of_tile).by_none[key / 32] >> key % 32 & 1) == 0;
    } else {
      const int t = job.walk.at(of_tile) + key, pos = job.item.first_pos + t;
      return t < job.walk.end && job.visible.is_seen(pos, pos + 1);
    }
  }

 private:
  WEFT_INLINE static bool has_none(const u32 (&parts)[4]) { return (parts[0] | parts[1] | parts[2] | parts[3]) == 0; }
};
#endif

}  // namespace weft::attention::cuda::producer
