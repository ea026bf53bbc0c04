// A tile of the products of warps (mma.h) or of a warpgroup (wgmma.h): its sizes, what lies in shared memory, and where
// a thread stands in it.
//
// It has 16 * kFragments rows for each of kWarpsM warps; kWarpsN warps share its keys, each with a softmax of its own,
// and join their states at the end. A warpgroup is four warps that share none: what it multiplies at once, 16 rows of
// each, are the rows of one fragment.
#pragma once

#include "attention/cuda/kernels/merge.h"
#include "attention/cuda/kernels/walk.h"
#include "tile/cuda/few_bits.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/warpgroup.h"

namespace weft::attention::cuda::mma {

// How rows of 16-bit elements lie in shared memory for those who multiply them.
template <bool kByWarpgroup, int kRows, int kColumns>
struct TileOf {
  using Type = tile::SharedTile<kColumns>;
  static constexpr int kBytes = Type::bytes(kRows), kAlignment = 128;
};
#if WEFT_SM >= 90
template <int kRows, int kColumns>
struct TileOf<true, kRows, kColumns> {
  using Type = tile::PanelTile<abi::in_wide_panels(kRows, kColumns)>;
  static constexpr int kBytes = Type::bytes(), kAlignment = 1024;
};
#endif

// What is multiplied.
template <class T, bool kFewBits>
struct ProductOf {
  using Type = T;
};
template <class T>
struct ProductOf<T, true> {
  using Type = fp16;
};

// How the numbers of keys and values lie where they are multiplied: as they are stored, or, for warpgroups, in 16 bits.
template <class S, bool kByWarpgroup>
struct KvNumbersOf {
  using Type = typename S::Cache;
};
template <class S>
struct KvNumbersOf<S, true> {
  using Type = typename S::Multiplied;
};
template <class S, bool kByWarpgroup = false>
struct KvNumbers {
  // What is multiplied, or fewer bits, which become fp16 in registers.
  using Cache = typename KvNumbersOf<S, kByWarpgroup>::Type;
  using Halves = tile::Halves<Cache>;
  static constexpr bool kFewBits = sizeof(Cache) < sizeof(typename S::Multiplied);
  using Product = typename ProductOf<typename S::Multiplied, kFewBits>::Type;
  static constexpr bool kTokenScales = S::kScaling == Scaling::token;
  // A lane has so many neighbouring outputs at a time, those of a register of values.
  static constexpr int kRun = tile::kPerWord<Cache>, kKvBits = 32 / kRun;
};

// S: the spec as constants (cuda/text.cpp), F: Functors, kIsAlone: the kernel has no other tiles.
template <class S_, class F_, int kFragments_, int kWarpsM_, int kWarpsN_, int kKeys_, bool kIsAlone_,
          bool kByWarpgroup_ = false>
struct Shape : KvNumbers<S_, kByWarpgroup_> {
  using S = S_;
  using F = F_;
  static constexpr bool kIsAlone = kIsAlone_, kByWarpgroup = kByWarpgroup_;
  using H = typename F::OfVariant;
  using T = typename S::Multiplied;  // queries, and keys and values of 16 bits
  using Numbers = KvNumbers<S, kByWarpgroup>;
  using Numbers::kFewBits, Numbers::kTokenScales, Numbers::kRun, Numbers::kKvBits;
  using Product = typename Numbers::Product;
  // Probabilities times scales, or what stands in their place without a softmax, are of any size.
  static constexpr bool kFollowsWeights = kFewBits && (kTokenScales || !F::kSoftmax);
  static constexpr int kFragments = kFragments_, kWarpsN = kWarpsN_, kKeys = kKeys_;
  static constexpr int kThreads = S::kThreads, kWarps = kWarpsM_ * kWarpsN;
  static constexpr int kLogitThreads = kThreads;  // that make the logits of a tile
  static constexpr int kRows = 16 * kFragments * kWarpsM_, kWarpKeys = kKeys / kWarpsN;
  static constexpr int kStages = S::kStages, kRing = kStages + 1;
  static constexpr int kDimQk = S::kDimQk, kDimVo = S::kDimVo;
  // Rows end with zeros.
  static constexpr int kPiece = numbers_of_piece(kKvBits);
  static constexpr int kPadQk = (kDimQk + kPiece - 1) / kPiece * kPiece;
  static constexpr int kPadVo = (kDimVo + kPiece - 1) / kPiece * kPiece;
  // As many 16-bit elements as a row of keys and values takes.
  static constexpr int kKeyHalves = kPadQk * kKvBits / 16, kValueHalves = kPadVo * kKvBits / 16;
  static constexpr int kOwnVo = kDimVo, kOwnPadVo = kPadVo;  // columns of outputs that a warp has
  // Scores are changed by a functor, or are what values are multiplied by.
  static constexpr bool kMaskFunctor = H::logits_mask || F::OfMask::logits_mask;
  static constexpr bool kFunctor = H::logits_transform || kMaskFunctor || !F::kSoftmax;
  // Registers of a thread, as compilers take them: outputs, scores of so many keys at a time, queries that stay, what
  // is loaded beside these and what of few bits it becomes, addresses.
  static constexpr int registers(int keys, bool keeps_queries) {
    const int of_fragment = kPadVo / 2 + keys / 2 + (keeps_queries ? kPadQk / 4 : 8) + 8;
    const int of_few_bits =
        kFewBits ? 2 * kRun + (Numbers::Halves::kLosesSpecials ? 34 : 0) + (Numbers::Halves::kOffset > 0 ? 8 : 4) : 0;
    return 62 + of_few_bits + (kMaskFunctor ? 48 : 0) + (F::kSoftmax ? 0 : 20) + kFragments * of_fragment;
  }
  static constexpr int kOfBlocks = 56;      // where tokens of a block lie, and who sees them
  static constexpr int kMostProducts = 32;  // of a loop that is unrolled: of more the compiler leaves a loop
  // All of a warp's keys of a tile, or few; the least that there is where nothing fits. The same in every KV form, so
  // that all give the same bits.
  static constexpr bool kFitsAll = registers(kWarpKeys, false) <= 255 &&
                                   kWarpKeys / 16 * ((kPadQk > kPadVo ? kPadQk : kPadVo) / 16) <= kMostProducts;
  static constexpr int kFew = kFewBits && registers(32, false) > 255 ? 16 : 32;
  static constexpr int kStepKeys = kByWarpgroup || kWarpKeys <= kFew || kFitsAll ? kWarpKeys : kFew;
  // Fragments whose scores become probabilities at once.
  static constexpr int kStepFragments = kByWarpgroup ? 1 : kFragments;
  // Of a warpgroup, whether there are registers for the scores of both fragments.
  static constexpr bool kHasAllScores = kByWarpgroup && kFragments == 2 && registers(kKeys, false) <= 255;
  // Beside tiles of more rows the compiler finds no registers for queries that all warps have, and keeps them in the
  // thread's stack.
  static constexpr bool kKeepsQueries =
      registers(kStepKeys, true) + (S::kBlockSparse ? kOfBlocks : 0) <= 255 && (kIsAlone || kWarpsN == 1);
  template <int kTileRows, int kColumns>
  using TileOf = mma::TileOf<kByWarpgroup, kTileRows, kColumns>;
  using QueryTile = TileOf<kRows, kPadQk>;
  using KeyTile = TileOf<kKeys, kKeyHalves>;
  using ValueTile = TileOf<kKeys, kValueHalves>;
  using Queries = typename QueryTile::Type;
  using Keys = typename KeyTile::Type;
  using Values = typename ValueTile::Type;
  using QueryRows = tile::FragmentRows<kPadQk>;
  using KeyRows = tile::FragmentRows<kKeyHalves>;
  using ValueRows = tile::FragmentRows<kValueHalves>;
  using Scores = float[kStepFragments][kStepKeys / 8][4];
  // Threads find the tokens of the first kStages tiles together, so many each.
  static constexpr int kFirstTokens = (kStages * kKeys + kThreads - 1) / kThreads;
  static constexpr int kStageBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kTileBytes = QueryTile::kBytes + kStages * kStageBytes;
  static constexpr int kOutStride = kPadVo + 4, kOutBytes = kWarpsN * kRows * kOutStride * 4;
  // A warp has rows of its own, and writes them: lanes exchange outputs where that takes no stack, or put them in order
  // where its queries were.
  static constexpr bool kExchanges = kByWarpgroup;
  static constexpr bool kStoresOwn = kWarpsN == 1 && !H::output_transform && kPadVo <= kPadQk;
  static_assert(kThreads == 32 * kWarps && kStepKeys % 16 == 0 && kKeys <= kThreads && kStages >= 2);
  static_assert(!H::value_transform && !S::kLatent);
  static_assert(!kFewBits || !H::key_transform);
  static_assert(!kByWarpgroup || !kFewBits);
  static_assert(!kByWarpgroup || (kWarpsM_ % 4 == 0 && kWarpsN == 1));

  static constexpr int kScales = kTokenScales ? kRing * kKeys : 1;
  struct Shared {
    Scratch<S> scratch;
    FusedRow rows[kRows];
    VisibleRange visible;
    Walk<kKeys> walk;
    Tokens<S> tokens;
    float lse[kRows];
    // Once a row is joined, sum[0] has the rest of its lse. Before, beside few bits, maximum[0] and sum[0] have what
    // becomes of its scores (few_bit_queries.h).
    float maximum[kWarpsN][kRows], sum[kWarpsN][kRows];
    int not_finite[kWarps];
    int special_keys;  // not 0: some key's numbers may not be finite (special_keys.h)
    Source<S::kBlockSparse> sources[kRing][kKeys];
    Scales scales[kScales];  // of the ring's tokens, or of the KV head
    // Queries, then stages of keys and values; at last the outputs of each of kWarpsN warps.
    alignas(QueryTile::kAlignment) u8 tiles[kTileBytes > kOutBytes ? kTileBytes : kOutBytes];
  };
  static_assert(sizeof(Shared) == products_shared_bytes({.dim_qk = kDimQk,
                                                         .dim_vo = kDimVo,
                                                         .threads = kThreads,
                                                         .rows = kRows,
                                                         .keys = kKeys,
                                                         .stages = kStages,
                                                         .kv_bits = kKvBits,
                                                         .scales = kScales,
                                                         .is_block_sparse = S::kBlockSparse,
                                                         .by_warpgroup = kByWarpgroup}));
  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static Queries queries() { return {shared().tiles}; }
  WEFT_INLINE static Keys keys_of(int stage) { return {shared().tiles + QueryTile::kBytes + stage * kStageBytes}; }
  WEFT_INLINE static Values values_of(int stage) { return {keys_of(stage).data + KeyTile::kBytes}; }
  // Which row lies at row `at` of the queries' tile: a warp has rows that follow each other, and a fragment some of
  // every warp.
  WEFT_INLINE static int row_at(int at) {
    if constexpr (!kByWarpgroup || kFragments == 1) return at;
    return at % 64 / 16 * (16 * kFragments) + at / 64 * 16 + at % 16;
  }
  // Before the barrier behind which what this thread stored, or copied, is multiplied.
  WEFT_INLINE static void publish() {
#if WEFT_SM >= 90
    if constexpr (kByWarpgroup) ptx::fence_async_shared();
#endif
  }
  WEFT_INLINE static const Scales& head_scales(const ItemRecord&) { return shared().scales[0]; }
  WEFT_INLINE static float* out() { return reinterpret_cast<float*>(shared().tiles); }
  // Where outputs are put in order: a warp's, where its queries were.
  template <class Thread>
  WEFT_INLINE static u8* staging(const Thread& thread) {
    return queries().data + thread.first_row() * kPadQk * 2;
  }
};

// A thread's place in the CTA, and which elements of fragments its lane holds.
template <class Shape>
struct Thread {
  static constexpr int kWarpsN = Shape::kWarpsN;
  int index, lane, warp;

  WEFT_INLINE Thread() { forget(); }
  // What follows from the place is found again from here on, instead of taking registers since the kernel began.
  WEFT_INLINE void forget() {
    index = ptx::opaque(ptx::thread_index());
    lane = index % 32;
    warp = index / 32;
  }
  WEFT_INLINE int warp_m() const { return kWarpsN == 1 ? warp : warp / kWarpsN; }
  WEFT_INLINE int warp_n() const { return kWarpsN == 1 ? 0 : warp % kWarpsN; }
  // Among kLogitThreads.
  WEFT_INLINE int of_tile() const { return index; }
  // Rows of the tile: the warp's first one, and this lane's.
  WEFT_INLINE int first_row() const { return 16 * Shape::kFragments * warp_m(); }
  WEFT_INLINE int row(int m, int half) const { return first_row() + 16 * m + lane / 4 + 8 * half; }
  WEFT_INLINE int column() const { return lane % 4 * 2; }
  // Of outputs, the warp's first column; and whether others have none of these rows.
  WEFT_INLINE static constexpr int first_column() { return 0; }
  WEFT_INLINE static constexpr bool writes_lse() { return true; }
};

}  // namespace weft::attention::cuda::mma
