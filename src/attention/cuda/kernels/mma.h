// Attention by the products of warps (mma.sync): keys and values go to shared memory as they are stored, some tiles ahead, and
// stay there until they are multiplied; scores, probabilities and outputs are in registers.
//
// A tile has 16 * kFragments rows for each of kWarpsM warps; kWarpsN warps share its keys, each with a softmax of its own, and
// join their states at the end. Tiles begin at multiples of kKeys from the item's first key.
//
// Registers are what a warp multiplies and little else: what an item is lies in shared memory, and is read when it is asked for.
#pragma once

#include "attention/cuda/kernels/merge.h"
#include "attention/cuda/kernels/output.h"
#include "attention/cuda/kernels/walk.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::attention::cuda {

// Where a token's key and value lie; of blocks also its position, and the bits that say which rows see it.
template <bool kBlockSparse>
struct alignas(16) Source {
  const char *k, *v;
};
template <>
struct alignas(16) Source<true> {
  const char *k, *v;
  i64 bits;
  int pos;
};

// S: the spec as constants (cuda/text.cpp), F: Functors.
template <class S, class F, int kFragments, int kWarpsM, int kWarpsN, int kKeys>
class Mma {
  using P = typename F::P;
  using H = typename F::OfVariant;
  using T = typename S::Multiplied;
  static constexpr int kThreads = S::kThreads, kWarps = kWarpsM * kWarpsN;
  static constexpr int kRows = 16 * kFragments * kWarpsM, kWarpKeys = kKeys / kWarpsN;
  static constexpr int kStages = S::kStages, kRing = kStages + 1;
  static constexpr int kDimQk = S::kDimQk, kDimVo = S::kDimVo;
  // Products take 16 elements at a time: rows end with zeros.
  static constexpr int kPadQk = (kDimQk + 15) / 16 * 16, kPadVo = (kDimVo + 15) / 16 * 16;
  // Scores are changed by a functor, or are what values are multiplied by.
  static constexpr bool kFunctor = H::logits_transform || H::logits_mask || F::OfMask::logits_mask || !F::kSoftmax;
  // A warp's scores are of so many keys at a time: beside a functor, or very many outputs, there are registers for half a tile.
  static constexpr int kStepKeys =
      kWarpKeys >= 32 && (kFunctor || kFragments * kPadVo > 256) ? kWarpKeys / 2 : kWarpKeys;
  // Queries stay in registers where these have room.
  static constexpr bool kKeepsQueries = kFragments * (kPadQk / 4 + kPadVo / 2 + kStepKeys / 2) <= 160;
  using Keys = tile::SharedTile<kPadQk>;
  using Values = tile::SharedTile<kPadVo>;
  using KeyRows = tile::FragmentRows<kPadQk>;
  using ValueRows = tile::FragmentRows<kPadVo>;
  using Scores = float[kFragments][kStepKeys / 8][4];
  // Threads find the tokens of the first kStages tiles together, so many each.
  static constexpr int kFirstTokens = (kStages * kKeys + kThreads - 1) / kThreads;
  static constexpr int kStageBytes = Keys::bytes(kKeys) + Values::bytes(kKeys);
  static constexpr int kTileBytes = Keys::bytes(kRows) + kStages * kStageBytes;
  static constexpr int kOutStride = kPadVo + 4, kOutBytes = kWarpsN * kRows * kOutStride * 4;
  // A warp has rows of its own, and writes them from where its queries were.
  static constexpr bool kStoresOwn = kWarpsN == 1 && !H::output_transform && kPadVo <= kPadQk;
  static_assert(kThreads == 32 * kWarps && kStepKeys % 16 == 0 && kKeys <= kThreads && kStages >= 2);
  static_assert(!H::value_transform && !S::kLatent && S::kScaling == Scaling::none);

 public:
  struct Shared {
    Scratch<S> scratch;
    FusedRow rows[kRows];
    VisibleRange visible;
    Walk<kKeys> walk;
    Tokens<S> tokens;
    float lse[kRows];
    float base[kWarpsN][kRows], sum[kWarpsN][kRows];
    int not_finite[kWarps];
    Source<S::kBlockSparse> sources[kRing][kKeys];
    // Queries, then stages of keys and values; at last the outputs of each of kWarpsN warps.
    alignas(128) u8 tiles[kTileBytes > kOutBytes ? kTileBytes : kOutBytes];
  };

  static constexpr int kSharedBytes = sizeof(Shared);

  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    const int num_rows = item.num_rows * call.group_size;
    WEFT_NO_UNROLL
    for (int kv_head = item.kv_head_begin; kv_head < item.kv_head_end; ++kv_head) WEFT_NO_UNROLL
    for (int first = 0; first < num_rows; first += kRows) {
      const int n = num_rows - first < kRows ? num_rows - first : kRows;
      Mma(call, p, item, kv_head, first, n).run();
    }
  }

 private:
  WEFT_INLINE Mma(const Call& call, const P& p, const ItemRecord& item, int kv_head, int first, int n)
      : call_(call), p_(p), item_(item), kv_head_(kv_head), first_(first), n_(n) {
    forget();
  }

  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static Keys queries() { return {shared().tiles}; }
  WEFT_INLINE static Keys keys_of(int stage) { return {shared().tiles + Keys::bytes(kRows) + stage * kStageBytes}; }
  WEFT_INLINE static Values values_of(int stage) { return {keys_of(stage).data + Keys::bytes(kKeys)}; }
  WEFT_INLINE static float* out() { return reinterpret_cast<float*>(shared().tiles); }
  WEFT_INLINE int warp_m() const { return kWarpsN == 1 ? warp_ : warp_ / kWarpsN; }
  WEFT_INLINE int warp_n() const { return kWarpsN == 1 ? 0 : warp_ % kWarpsN; }
  WEFT_INLINE int first_row() const { return 16 * kFragments * warp_m(); }
  // Of this lane's rows of the tile.
  WEFT_INLINE int row_of_lane(int m, int half) const { return first_row() + 16 * m + lane_ / 4 + 8 * half; }
  WEFT_INLINE int column_of_lane() const { return lane_ % 4 * 2; }

  // What follows from the thread's place is found again from here on, instead of taking registers since the kernel began.
  WEFT_INLINE void forget() {
    thread_ = ptx::opaque(ptx::thread_index());
    lane_ = thread_ % 32;
    warp_ = thread_ / 32;
  }

  // What a value that is not finite would make of rows that do not see it is seen at the end: then all is done again with such
  // values left out, and they are added to the rows that see them.
  WEFT_INLINE void run() {
    int pages[kFirstTokens];  // of this thread's tokens of the item's first tiles
    load_rows(pages);
    bool apart = false;
    WEFT_NO_UNROLL
    for (;; apart = true) {
      load_queries();
      multiply(apart, pages);
      if (apart || !may_differ() || is_finite_everywhere()) break;
    }
    if (kStoresOwn && !apart) {
      if constexpr (kStoresOwn) store_own();
    } else {
      join();
      if (apart) add_not_finite();
      const PartialStates partial = partial_of(call_, item_);
      WEFT_NO_UNROLL
      for (int r = warp_; r < n_; r += kWarps)
        write_state<S, F>(call_, p_, partial, shared().rows[r], (first_ + r) / call_.group_size, out() + r * kOutStride,
                          shared().lse[r]);
    }
    ptx::cta_sync();
  }

  WEFT_INLINE bool by_position() const { return S::kBlockSparse && header().positions_per_page > 0; }
  WEFT_INLINE bool has_bits() const { return S::kBlockSparse && header().bits_index.count > 0; }
  // Whether rows may see different keys.
  WEFT_INLINE bool may_differ() const { return item_.num_rows > 1 || by_position() || has_bits(); }

  // Rows behind the last one are that one again, so that functors see what exists. The last threads begin: the first ones
  // look for pages meanwhile.
  WEFT_INLINE void load_rows(int (&pages)[kFirstTokens]) {
    Shared& s = shared();
    WEFT_NO_UNROLL
    for (int r = kThreads - 1 - thread_; r < kRows; r += kThreads)
      s.rows[r] = fused_row(call_, item_, kv_head_, first_ + (r < n_ ? r : n_ - 1));
    const Tokens<S> tokens(call_, item_);
    WEFT_UNROLL
    for (int i = 0; i < kFirstTokens; ++i) pages[i] = tokens.page_if_listed(item_.kv_begin + thread_ + i * kThreads);
    const int end = end_of(call_, item_);
    ptx::cta_sync();
    if (warp_ == 0) {
      const VisibleRange visible = hull_of(s.rows, n_);
      const bool everything = by_position() || call_.mask_error != nullptr;
      const Walk<kKeys> walk = everything ? Walk<kKeys>::over(item_.kv_begin, end)
                                          : Walk<kKeys>::over_seen(visible, item_.first_pos, item_.kv_begin, end);
      if (lane_ == 0) {
        s.visible = visible;
        s.walk = walk;
        s.tokens = tokens;
      }
    }
    ptx::cta_sync();
  }

  // Which rows of a tile this thread copies 16 bytes of, and which: rows `first`, first + kTogether, ... Rows that are 8 apart are
  // permuted alike.
  template <int kColumns>
  struct CopyOf {
    static constexpr int kChunks = kColumns / 8, kTogether = kThreads / kChunks;
    int chunk, first;
    ptx::SharedPlace place;
    WEFT_INLINE CopyOf(const tile::SharedTile<kColumns>& to, int thread)
        : chunk(thread % kChunks), first(thread / kChunks), place(ptx::shared_place(to.chunk(first, chunk))) {}
    // What a row has too few of for products is zeros.
    template <int kDim>
    WEFT_INLINE void copy(const tile::SharedTile<kColumns>& to, int i, const char* row) const {
      const int at = first + i * kTogether;
      const ptx::SharedPlace there =
          kTogether % 8 == 0 ? place + i * kTogether * kColumns * 2 : ptx::shared_place(to.chunk(at, chunk));
      const bool has_chunk = kDim == kColumns || chunk < kDim / 8;
      ptx::cp_async_16(there, row + (has_chunk ? 16 * chunk : 0), has_chunk ? 16 : 0);
    }
    template <int kTileRows>
    static constexpr int kCopies = (kTileRows + kTogether - 1) / kTogether;
    template <int kTileRows>
    WEFT_INLINE bool has(int i) const {
      return (kTileRows % kTogether == 0 && kThreads % kChunks == 0) ||
             (first < kTogether && first + i * kTogether < kTileRows);
    }
  };

  WEFT_INLINE const char* query(int r) const {
    const FusedRow& row = shared().rows[r];
    return call_.q.data + row.q_row * call_.q.row_stride + row.head * call_.q.head_stride;
  }

  WEFT_INLINE void load_queries() {
    if constexpr (H::query_transform) {
      WEFT_NO_UNROLL
      for (int r = warp_; r < kRows; r += kWarps) transform_query(r);
    } else {
      using Copy = CopyOf<kPadQk>;
      const Copy copy(queries(), thread_);
      WEFT_UNROLL
      for (int i = 0; i < Copy::template kCopies<kRows>; ++i)
        if (copy.template has<kRows>(i))
          copy.template copy<kDimQk>(queries(), i, query(copy.first + i * Copy::kTogether));
      ptx::cp_async_commit();
    }
  }
  // By one warp.
  WEFT_INLINE void transform_query(int r) {
    if constexpr (H::query_transform) {
      const FusedRow& row = shared().rows[r];
      float* const raw = shared().scratch.vectors[warp_];
      for (int i = lane_; i < kDimQk; i += 32) raw[i] = element<T>(query(r), i);
      ptx::warp_sync();
      auto state = F::enter(p_, row.request);
      const Vec x = vector_of<kDimQk>(raw);
      const Row of{row.request, row.idx, row.pos, row.head, 0.f};
      for (int i = lane_; i < kPadQk; i += 32)
        tile::store(reinterpret_cast<T*>(queries().chunk(r, i / 8)) + i % 8,
                    i < kDimQk ? static_cast<float>(state.variant.query_transform(p_, x, i, of)) : 0.f);
      ptx::warp_sync();
    }
  }

  // ---------------------------------------------------------------- tiles of keys

  // In the place of a token that no row sees, or that is not there, stands the last one that some row sees.
  WEFT_INLINE int token_of(int tile, int key) const {
    const Shared& s = shared();
    const int t = s.walk.at(tile) + key, pos = item_.first_pos + t;
    return t < s.walk.end && (by_position() || s.visible.touches(pos, pos + 1)) ? t : s.walk.end - 1;
  }
  WEFT_INLINE void locate(int tile, int key, int t, int page) const {
    Shared& s = shared();
    Source<S::kBlockSparse>& source = s.sources[tile % kRing][key];
    source.k = s.tokens.row(call_.k, page, t, kv_head_);
    source.v = s.tokens.row(call_.v, page, t, kv_head_);
    if constexpr (S::kBlockSparse) {  // its own, whoever stands in its place
      const int own = s.walk.at(tile) + key;
      source.bits = own < s.walk.end ? bits_of_token(call_, item_, own) : -1;
      source.pos = own < s.walk.end ? position_of(call_, item_, own) : -1;
    }
  }
  WEFT_INLINE void fetch(int tile) const {
    using CopyKeys = CopyOf<kPadQk>;
    using CopyValues = CopyOf<kPadVo>;
    const auto* const sources = shared().sources[tile % kRing];
    const Keys keys = keys_of(tile % kStages);
    const Values values = values_of(tile % kStages);
    const CopyKeys of_keys(keys, thread_);
    const CopyValues of_values(values, thread_);
    WEFT_UNROLL
    for (int i = 0; i < CopyKeys::template kCopies<kKeys>; ++i) {
      if (!of_keys.template has<kKeys>(i)) continue;
      const auto& source = sources[of_keys.first + i * CopyKeys::kTogether];
      const char* const k = source.k;
      const char* const v = source.v;
      of_keys.template copy<kDimQk>(keys, i, k);
      if constexpr (kPadQk == kPadVo) of_values.template copy<kDimVo>(values, i, v);
    }
    if constexpr (kPadQk != kPadVo) WEFT_UNROLL
    for (int i = 0; i < CopyValues::template kCopies<kKeys>; ++i)
      if (of_values.template has<kKeys>(i))
        of_values.template copy<kDimVo>(values, i, sources[of_values.first + i * CopyValues::kTogether].v);
  }

  WEFT_INLINE void multiply(bool apart, const int (&pages)[kFirstTokens]) {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      state_[m] = tile::RowState::empty();
      WEFT_UNROLL
      for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o_[m][f][e] = 0;
    }
    // Tiles are located kStages ahead, and fetched kStages - 1 ahead: page ids lie together, and mostly in the nearest cache.
    const Shared& s = shared();
    const Walk<kKeys>& walk = s.walk;
    WEFT_UNROLL
    for (int i = 0; i < kFirstTokens; ++i) {
      const int at = thread_ + i * kThreads, tile = at / kKeys, key = at % kKeys;
      if (tile >= kStages || tile >= walk.num_tiles) continue;
      const int t = token_of(tile, key);
      locate(tile, key, t, t == item_.kv_begin + at ? pages[i] : s.tokens.page(t));
    }
    const int num_tiles = walk.num_tiles;
    WEFT_NO_UNROLL
    for (int tile = 1 - kStages; tile < num_tiles; ++tile) {
      forget();
      if (tile >= 0) ptx::cp_async_wait<kStages - 2>();
      ptx::cta_sync();  // the tile is there, and the one before it was read
      if (tile + kStages - 1 < num_tiles) fetch(tile + kStages - 1);
      ptx::cp_async_commit();
      if (tile < 0) continue;
      if (thread_ < kKeys && tile + kStages < num_tiles) {
        const int t = token_of(tile + kStages, thread_);
        locate(tile + kStages, thread_, t, s.tokens.page(t));
      }
      if (kKeepsQueries && tile == 0) keep_queries();
      multiply_tile(tile, apart);
    }
    forget();
    ptx::cp_async_wait<0>();
    ptx::cta_sync();
  }

  WEFT_INLINE void multiply_tile(int tile, bool apart) {
    const int stage = tile % kStages, at = shared().walk.at(tile);
    if constexpr (H::key_transform) transform_keys(tile, at);
    if (apart) leave_out(values_of(stage));
    WEFT_NO_UNROLL
    for (int key = warp_n() * kWarpKeys; key < (warp_n() + 1) * kWarpKeys; key += kStepKeys) {
      Scores s = {};
      multiply_keys(KeyRows::of_b({keys_of(stage).data + key * kPadQk * 2}, lane_), s);
      const float to_log2 = make_logits(tile, at, key, s);
      if constexpr (F::kSoftmax) exponentiate(to_log2, s);
      multiply_values(ValueRows::of_b_rows({values_of(stage).data + key * kPadVo * 2}, lane_), s);
    }
  }

  // Probabilities, and what was summed before relative to the new maximum. Most tiles leave the maxima as they are.
  WEFT_INLINE void exponentiate(float to_log2, Scores& s) {
    float shrink[kFragments][2];
    tile::softmax_step(state_, s, to_log2, shrink);
    bool changes = false;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) changes = changes || shrink[m][0] != 1.f || shrink[m][1] != 1.f;
    if (ptx::ballot(changes) == 0) return;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) o_[m][f][e] *= shrink[m][e / 2];
  }

  WEFT_INLINE void load_query(u32 (&a)[kFragments][4], const KeyRows& from, int k) const {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) tile::load(a[m], from, 16 * m, 16 * k);
  }
  WEFT_INLINE KeyRows query_rows() const { return KeyRows::of_a({queries().data + first_row() * kPadQk * 2}, lane_); }
  WEFT_INLINE void keep_queries() {
    if constexpr (kKeepsQueries) WEFT_UNROLL
    for (int k = 0; k < kPadQk / 16; ++k) load_query(q_[k], query_rows(), k);
  }

  // What is multiplied next is loaded before what is there is multiplied.
  WEFT_INLINE void multiply_keys(const KeyRows& keys, Scores& s) const {
    constexpr int kColumns = kStepKeys / 16, kSteps = kPadQk / 16 * kColumns;
    const KeyRows of_queries = query_rows();
    u32 a[2][kFragments][4], b[2][4];
    if constexpr (!kKeepsQueries) load_query(a[0], of_queries, 0);
    tile::load(b[0], keys, 0, 0);
    WEFT_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int k = i / kColumns, column = i % kColumns, next = i + 1;
      if (next < kSteps) tile::load(b[next % 2], keys, next % kColumns * 16, next / kColumns * 16);
      if (!kKeepsQueries && column == 0 && k + 1 < kPadQk / 16) load_query(a[(k + 1) % 2], of_queries, k + 1);
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) {
        const auto& of_query = kKeepsQueries ? q_[kKeepsQueries ? k : 0] : a[k % 2];
        tile::multiply<T>(s[m][2 * column], of_query[m], b[i % 2][0], b[i % 2][1]);
        tile::multiply<T>(s[m][2 * column + 1], of_query[m], b[i % 2][2], b[i % 2][3]);
      }
    }
  }

  WEFT_INLINE static int position(const Source<S::kBlockSparse>* sources, int begin, int key) {
    if constexpr (S::kBlockSparse) return sources[key].pos;
    return begin + key;
  }

  // Scores become logits, hidden ones what hides them; times what is returned they are relative to 2.
  WEFT_INLINE float make_logits(int tile, int at, int first, Scores& s) const {
    const Shared& shared = Mma::shared();
    const auto* const sources = shared.sources[tile % kRing];
    const int begin = item_.first_pos + at, keys = shared.walk.end - at < kKeys ? shared.walk.end - at : kKeys;
    const bool all =
        keys == kKeys && !by_position() && !has_bits() && shared.visible.is_seen_by_all(begin, begin + kKeys);
    if constexpr (kFunctor) {
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const FusedRow& row = shared.rows[row_of_lane(m, half)];
        WEFT_UNROLL
        for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
        for (int e = 0; e < 2; ++e) {
          // Of a key that is not there, the last one's.
          int key = first + 8 * f + column_of_lane() + e;
          key = key < keys ? key : keys - 1;
          float& x = s[m][f][2 * half + e];
          x = F::logit(p_, row, begin + key, position(sources, begin, key), x);
        }
      }
    } else if (!(p_.sm_scale > 0.f)) {  // the largest score is not the largest logit
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
      for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) s[m][f][e] *= p_.sm_scale;
    }
    if (!all) {
      if (call_.mask_error != nullptr) find_left_out(sources, at, begin, keys);
      if constexpr (S::kBlockSparse)
        hide_blocks(sources, at, keys, first, s);
      else
        hide(begin, keys, first, s);
    }
    return !kFunctor && p_.sm_scale > 0.f ? p_.sm_scale * tile::kLog2E : tile::kLog2E;
  }

  // What a row does not see of keys that follow each other lies outside [low, high), or in the gap between two intervals.
  WEFT_INLINE void hide(int begin, int keys, int first, Scores& s) const {
    const int column = begin + first + column_of_lane();
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const SeenKeys seen = seen_keys(shared().rows[row_of_lane(m, half)].visible);
      const int low = seen.low - column, high = (seen.high < begin + keys ? seen.high : begin + keys) - column;
      WEFT_UNROLL
      for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e < low || 8 * f + e >= high) s[m][f][2 * half + e] = F::hidden();
      if (seen.gap_low >= seen.gap_high) continue;
      WEFT_UNROLL
      for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e)
        if (8 * f + e >= seen.gap_low - column && 8 * f + e < seen.gap_high - column)
          s[m][f][2 * half + e] = F::hidden();
    }
  }
  WEFT_INLINE void hide_blocks(const Source<S::kBlockSparse>* sources, int at, int keys, int first, Scores& s) const {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) WEFT_UNROLL
    for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e)
      if (!sees(row_of_lane(m, half), sources, at, keys, first + 8 * f + column_of_lane() + e))
        s[m][f][2 * half + e] = F::hidden();
  }
  WEFT_INLINE bool sees(int r, const Source<S::kBlockSparse>* sources, int at, int keys, int key) const {
    const FusedRow& row = shared().rows[r];
    if (key >= keys || !row.visible.holds(position(sources, item_.first_pos + at, key))) return false;
    if constexpr (S::kBlockSparse) return bits_show(call_, sources[key].bits, row.of_block, at + key);
    return true;
  }
  // WEFT_CHECK: a tile that is left out otherwise.
  WEFT_INLINE void find_left_out(const Source<S::kBlockSparse>* sources, int at, int begin, int keys) const {
    if (by_position() || shared().visible.touches(begin, begin + keys)) return;
    WEFT_NO_UNROLL
    for (int i = thread_; i < n_ * keys; i += kThreads)
      if (sees(i / keys, sources, at, keys, i % keys)) ptx::atomic_or(call_.mask_error, 1);
  }

  // Two fragments of a product are the halves of the next one's left operand.
  WEFT_INLINE void multiply_values(const ValueRows& values, const Scores& s) {
    constexpr int kColumns = kPadVo / 16, kSteps = kStepKeys / 16 * kColumns;
    u32 p[kFragments][4], b[2][4];
    tile::load_transposed(b[0], values, 0, 0);
    WEFT_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int key = i / kColumns, column = i % kColumns, next = i + 1;
      if (next < kSteps) tile::load_transposed(b[next % 2], values, next / kColumns * 16, next % kColumns * 16);
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) {
        if (column == 0) WEFT_UNROLL
        for (int e = 0; e < 4; ++e)
          p[m][e] = tile::pack<T>(s[m][2 * key + e / 2][e % 2 * 2], s[m][2 * key + e / 2][e % 2 * 2 + 1]);
        tile::multiply<T>(o_[m][2 * column], p[m], b[i % 2][0], b[i % 2][1]);
        tile::multiply<T>(o_[m][2 * column + 1], p[m], b[i % 2][2], b[i % 2][3]);
      }
    }
  }

  // The tile's keys as their hook makes them, rounded to what is multiplied.
  WEFT_INLINE void transform_keys(int tile, int at) const {
    const Keys keys = keys_of(tile % kStages);
    const auto* const sources = shared().sources[tile % kRing];
    WEFT_NO_UNROLL
    for (int key = warp_; key < kKeys; key += kWarps) {
      if (at + key >= shared().walk.end) break;
      float* const raw = shared().scratch.vectors[warp_];
      const auto at_element = [&](int i) { return reinterpret_cast<T*>(keys.chunk(key, i / 8)) + i % 8; };
      for (int i = lane_; i < kDimQk; i += 32) raw[i] = tile::to_float(*at_element(i));
      ptx::warp_sync();
      auto state = F::enter(p_, item_.request);
      const Vec x = vector_of<kDimQk>(raw);
      const int begin = item_.first_pos + at;
      const Row of{item_.request, begin + key, position(sources, begin, key), kv_head_, 0.f};
      for (int i = lane_; i < kDimQk; i += 32)
        if constexpr (H::key_transform)
          tile::store(at_element(i), static_cast<float>(state.variant.key_transform(p_, x, i, of)));
      ptx::warp_sync();
    }
    ptx::cta_sync();
  }

  // ---------------------------------------------------------------- values that are not finite

  WEFT_INLINE static bool is_finite(float x) { return x - x == 0.f; }

  // The CTA's outputs.
  WEFT_INLINE bool is_finite_everywhere() const {
    Shared& s = shared();
    float zero = 0;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
    for (int e = 0; e < 4; ++e) zero += o_[m][f][e] * 0.f;
    const unsigned ballot = ptx::ballot(zero != 0.f);  // NaN
    if (lane_ == 0) s.not_finite[warp_] = ballot != 0;
    ptx::cta_sync();
    bool finite = true;
    WEFT_UNROLL
    for (int w = 0; w < kWarps; ++w) finite = finite && s.not_finite[w] == 0;
    return finite;
  }

  WEFT_INLINE void leave_out(const Values& values) const {
    WEFT_NO_UNROLL
    for (int i = thread_; i < kKeys * kPadVo; i += kThreads) {
      T* const x = reinterpret_cast<T*>(values.chunk(i / kPadVo, i % kPadVo / 8)) + i % 8;
      if (!is_finite(tile::to_float(*x))) x->bits = 0;
    }
    ptx::cta_sync();
  }

  // A thread has some elements of all rows' outputs.
  WEFT_INLINE void add_not_finite() const {
    const Shared& s = shared();
    WEFT_NO_UNROLL
    for (int t = item_.kv_begin; t < s.walk.end; ++t) {
      const int pos = position_of(call_, item_, t);
      if (!s.visible.touches(pos, pos + 1)) continue;
      const i64 bits = bits_of_token(call_, item_, t);
      const Tokens<S> tokens(call_, item_);
      const char* const row = tokens.row(call_.v, tokens.page(t), t, kv_head_);
      WEFT_NO_UNROLL
      for (int i = thread_; i < kDimVo; i += kThreads) {
        const float v = element<T>(row, i);
        if (is_finite(v)) continue;
        WEFT_NO_UNROLL
        for (int r = 0; r < n_; ++r)
          if (s.rows[r].visible.holds(pos) && bits_show(call_, bits, s.rows[r].of_block, t))
            out()[r * kOutStride + i] += v;
      }
    }
    ptx::cta_sync();
  }

  // ---------------------------------------------------------------- states

  // The states of a warp's own rows, as fragments have them: partials as floats, outputs by way of shared memory in 16 bytes.
  WEFT_INLINE void store_own() {
    Shared& s = shared();
    const PartialStates partial = partial_of(call_, item_);
    const tile::SharedTile<kPadVo> staged{queries().data + first_row() * kPadQk * 2};
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = row_of_lane(m, half);
      const FusedRow& row = s.rows[r];
      const float total = F::kSoftmax ? state_[m].total(half) : 1.f, factor = total == 0.f ? 0.f : 1.f / total;
      const float lse = F::kSoftmax ? lse_of_base2(state_[m].base[half], total) : 0.f;
      const bool writes_lse = lane_ % 4 == 0 && r < n_;
      if (partial.data != nullptr) {
        const int token = (first_ + r) / call_.group_size;
        if (writes_lse) *partial.lse(call_, token, row.head) = lse;
        if (r < n_) store_pairs(partial.o(call_, token, row.head), m, half, factor);
      } else {
        if (writes_lse && call_.lse != nullptr)
          write_lse<F>(call_, p_, {row.q_row, row.request, row.idx, row.pos, row.head}, lse);
        if constexpr (kOutputIsHalf) {
          WEFT_UNROLL
          for (int f = 0; f < kPadVo / 8; ++f)
            *reinterpret_cast<u32*>(staged.chunk(r - first_row(), f) + lane_ % 4 * 4) =
                tile::pack<Output>(o_[m][f][2 * half] * factor, o_[m][f][2 * half + 1] * factor);
        } else {
          if (r < n_) store_pairs(reinterpret_cast<float*>(output_row(row)), m, half, factor);
        }
      }
    }
    if (kOutputIsHalf && partial.data == nullptr) {
      ptx::warp_sync();
      store_staged(staged);
    }
  }

  using Output = typename S::Output;
  static constexpr bool kOutputIsHalf = sizeof(Output) == 2;
  WEFT_INLINE char* output_row(const FusedRow& row) const {
    return call_.o.data + row.q_row * call_.o.row_stride + row.head * call_.o.head_stride;
  }
  // This lane's elements of a row.
  WEFT_INLINE void store_pairs(float* to, int m, int half, float factor) const {
    WEFT_UNROLL
    for (int f = 0; f < kDimVo / 8; ++f) WEFT_UNROLL
    for (int e = 0; e < 2; ++e) to[8 * f + column_of_lane() + e] = o_[m][f][2 * half + e] * factor;
  }
  WEFT_INLINE void store_staged(const tile::SharedTile<kPadVo>& staged) const {
    constexpr int kChunks = kDimVo / 8;
    const bool aligned = ((reinterpret_cast<u64>(call_.o.data) | call_.o.row_stride | call_.o.head_stride) & 15) == 0;
    WEFT_UNROLL_4
    for (int i = lane_; i < 16 * kFragments * kChunks; i += 32) {
      const int r = i / kChunks;
      if (first_row() + r >= n_) break;
      const u8* const from = staged.chunk(r, i % kChunks);
      char* const to = output_row(shared().rows[first_row() + r]) + i % kChunks * 16;
      if (aligned) {
        *reinterpret_cast<Bytes16*>(to) = *reinterpret_cast<const Bytes16*>(from);
      } else {
        for (int e = 0; e < 8; ++e) reinterpret_cast<u16*>(to)[e] = reinterpret_cast<const u16*>(from)[e];
      }
    }
  }

  // States to shared memory, those of the warps that share a row as one.
  WEFT_INLINE void join() {
    Shared& s = shared();
    float* const own = out() + warp_n() * kRows * kOutStride;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = row_of_lane(m, half);
      if constexpr (F::kSoftmax) {
        const float total = state_[m].total(half);
        if (lane_ % 4 == 0) {
          s.base[warp_n()][r] = state_[m].base[half];
          s.sum[warp_n()][r] = total;
        }
      }
      if (r >= n_) continue;
      WEFT_UNROLL
      for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) own[r * kOutStride + 8 * f + column_of_lane() + e] = o_[m][f][2 * half + e];
    }
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int r = warp_; r < n_; r += kWarps) join_row(r);
    ptx::cta_sync();
  }

  // By one warp.
  WEFT_INLINE void join_row(int r) const {
    Shared& s = shared();
    float weight[kWarpsN], total = 0, base = -infinity();
    if constexpr (F::kSoftmax) {
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w) base = ptx::larger(base, s.base[w][r]);
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w) {
        weight[w] = ptx::exp2_fast(s.base[w][r] - finite_base(base));
        total += weight[w] * s.sum[w][r];
      }
    }
    const float factor = !F::kSoftmax ? 1.f : total == 0.f ? 0.f : 1.f / total;
    WEFT_UNROLL
    for (int i = lane_; i < kDimVo; i += 32) {
      float sum = 0;
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w)
        sum += (F::kSoftmax ? weight[w] : 1.f) * out()[(w * kRows + r) * kOutStride + i];
      out()[r * kOutStride + i] = sum * factor;
    }
    if (lane_ == 0) s.lse[r] = F::kSoftmax ? lse_of_base2(base, total) : 0.f;
  }

  const Call& call_;
  const P& p_;
  const ItemRecord& item_;
  const int kv_head_, first_, n_;
  int thread_, lane_, warp_;
  tile::RowState state_[kFragments];
  float o_[kFragments][kPadVo / 8][4];
  u32 q_[kKeepsQueries ? kPadQk / 16 : 1][kFragments][4];
};

}  // namespace weft::attention::cuda
