// A tile of latent attention (latent.h): its sizes, what lies in shared memory, and where a thread stands in it.
#pragma once

#include "attention/cuda/kernels/mma/shape.h"
#include "tile/cuda/ptx/shuffle.h"
#include "tile/cuda/stages.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
namespace latent {

// S: the spec as constants (cuda/text.cpp), F: Functors. What parts of mma/ ask of a shape is said as there.
template <class S_, class F_>
struct Shape : mma::KvNumbers<S_> {
  using S = S_;
  using F = F_;
  using H = typename F::OfVariant;
  using T = typename S::Multiplied;
  static constexpr int kRows = kLatentRows, kKeys = kLatentKeys, kStages = kLatentStages, kRing = 1;
  // Two warpgroups multiply, and the one behind them loads.
  static constexpr int kGroups = 2, kLogitThreads = 128, kProductThreads = kGroups * kLogitThreads, kLoaders = 128;
  // Registers of a thread, of those that it begins with.
  static constexpr int kRegisters = 168, kOfProducts = 224, kOfLoaders = 56;
  static constexpr int kThreads = S::kThreads, kWarps = kThreads / 32;
  static constexpr int kDimQk = S::kDimQk, kDimVo = S::kDimVo, kPadQk = kDimQk, kPadVo = kDimVo;
  // A warpgroup has half the columns of all rows.
  static constexpr int kOwnVo = kDimVo / kGroups, kOwnPadVo = kOwnVo;
  static constexpr bool kMaskFunctor = H::logits_mask || F::OfMask::logits_mask;
  static constexpr bool kFunctor = H::logits_transform || kMaskFunctor || !F::kSoftmax;
  static constexpr int kFragments = 1, kStepFragments = 1, kStepKeys = kKeys;
  using Scores = float[kStepFragments][kStepKeys / 8][4];
  using Queries = tile::PanelTile<abi::in_wide_panels(kRows, kDimQk)>;
  // Of latent rows: keys in full, and values up to kDimVo.
  using Rows = tile::PanelTile<abi::in_wide_panels(kKeys, kDimQk)>;
  static constexpr int kPanelBytes = abi::in_wide_panels(kKeys, kDimQk).panel_bytes();
  using Probabilities = tile::PanelTile<abi::in_wide_panels(kRows, kKeys)>;
  static_assert(kThreads == kLatentThreads && kThreads == kProductThreads + kLoaders);
  static_assert(S::kLatent && S::kScaling == Scaling::none && !S::kBlockSparse);
  static_assert(!H::query_transform && !H::key_transform && !H::value_transform && !H::output_transform);
  static_assert((kDimVo == 128 || kDimVo == 256 || kDimVo == 512) && kDimQk == kDimVo + 64);

  struct Shared {
    Scratch<S> scratch;
    FusedRow rows[kRows];
    VisibleRange visible;
    Walk<kKeys> walk;
    Tokens<S> tokens;
    float maximum[kStages][kRows];  // what a tile's probabilities are relative to
    float sum[kGroups][kRows];      // of the probabilities that a warpgroup made
    int not_finite[8];
    Source<false> sources[kRing][kKeys];  // where a token's latent row lies, and the rest of its key
    u64 queries_are_there;
    // Of the first half of a row's values, with which scores begin, and of the rest.
    tile::StageBarriers<kStages> first_columns, other_columns;
    alignas(1024) u8 tiles[Queries::bytes() + kStages * Rows::bytes()];
  };
  static_assert(sizeof(Shared) == latent_shared_bytes(kDimQk));
  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static Queries queries() { return {shared().tiles}; }
  WEFT_INLINE static Rows rows_of(int stage) { return {shared().tiles + Queries::bytes() + stage * Rows::bytes()}; }
  // They lie over that part of a tile which is no value, and was multiplied for them.
  WEFT_INLINE static Probabilities probabilities_of(int stage) {
    return {rows_of(stage).data + abi::in_wide_panels(kKeys, kDimVo).bytes()};
  }
  WEFT_INLINE static int row_at(int at) { return at; }
  static constexpr bool kExchanges = false;  // lanes, outputs before they leave
  // Where outputs are put in order: over queries, once all are multiplied.
  template <class Thread>
  WEFT_INLINE static u8* staging(const Thread& thread) {
    return queries().data + thread.warp * (16 * kOwnVo * 2);
  }
};

// x, of which the compiler is to know that all lanes have it alike: descriptors that follow from it take no register of
// a thread, and none of the time of one.
WEFT_INLINE int same_in_warp(int x) { return static_cast<int>(ptx::shuffle(static_cast<u32>(x), 0)); }

// Barriers of threads, by name.
enum NamedBarrier : int {
  kProbabilitiesAreThere = 1,  // of tiles of even number; behind it, of odd
  kProductThreadsMeet = 3,
  kAllThreadsMeet = 4,
  kWarpgroupMeets = 5,  // of the first; behind it, of the second
  kLoadersMeet = 7,
};

}  // namespace latent

namespace mma {
// Both warpgroups have all rows.
template <class S, class F>
struct Thread<latent::Shape<S, F>> {
  using Shape = latent::Shape<S, F>;
  int index, lane, warp;

  WEFT_INLINE Thread() { forget(); }
  WEFT_INLINE void forget() {
    index = ptx::opaque(ptx::thread_index());
    lane = index % 32;
    warp = index / 32;
  }
  WEFT_INLINE bool loads() const { return index >= Shape::kProductThreads; }
  WEFT_INLINE int of_tile() const { return index % 128; }
  WEFT_INLINE int group() const { return warp / 4; }
  WEFT_INLINE int first_row() const { return 16 * (warp % 4); }
  WEFT_INLINE int row(int m, int half) const { return first_row() + 16 * m + lane / 4 + 8 * half; }
  WEFT_INLINE int column() const { return lane % 4 * 2; }
  WEFT_INLINE int first_column() const { return group() * Shape::kOwnVo; }
  WEFT_INLINE bool writes_lse() const { return group() == 0; }
};
}  // namespace mma
#endif

}  // namespace weft::attention::cuda
