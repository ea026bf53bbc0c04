// Attention by the products of warps (mma.sync): keys and values go to shared memory as they are stored, some tiles ahead, and
// stay there until they are multiplied; scores, probabilities and outputs are in registers.
//
// A tile has 16 * kFragments rows for each of kWarpsM warps; kWarpsN warps share its keys, each with a softmax of its own, and
// join their states at the end. Tiles begin at multiples of kKeys from the item's first key.
#pragma once

#include "attention/cuda/kernels/merge.h"
#include "attention/cuda/kernels/output.h"
#include "tile/cuda/fragment.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::attention::cuda {

// S: the spec as constants (cuda/text.cpp), F: Functors.
template <class S, class F, int kFragments, int kWarpsM, int kWarpsN>
class Mma {
  using P = typename F::P;
  using H = typename F::OfVariant;
  using T = typename S::Multiplied;
  static constexpr int kThreads = S::kThreads, kWarps = kWarpsM * kWarpsN;
  static constexpr int kRows = 16 * kFragments * kWarpsM, kKeys = S::kTileKeys, kWarpKeys = kKeys / kWarpsN;
  static constexpr int kStages = S::kStages, kRing = kStages + 1;
  static constexpr int kDimQk = S::kDimQk, kDimVo = S::kDimVo;
  // Products take 16 elements at a time: rows end with zeros.
  static constexpr int kPadQk = (kDimQk + 15) / 16 * 16, kPadVo = (kDimVo + 15) / 16 * 16;
  // A warp's scores are of so many keys at a time: beside many outputs there are registers for half a tile.
  static constexpr int kStepKeys = kFragments * kPadVo <= 128 || kWarpKeys < 32 ? kWarpKeys : kWarpKeys / 2;
  using Keys = tile::SharedTile<kPadQk>;
  using Values = tile::SharedTile<kPadVo>;
  static constexpr int kStageBytes = Keys::bytes(kKeys) + Values::bytes(kKeys);
  static constexpr int kTileBytes = Keys::bytes(kRows) + kStages * kStageBytes;
  static constexpr int kOutStride = kPadVo + 4, kOutBytes = kWarpsN * kRows * kOutStride * 4;
  // Scores are changed by a functor, or are what values are multiplied by.
  static constexpr bool kFunctor = H::logits_transform || H::logits_mask || F::OfMask::logits_mask || !F::kSoftmax;
  static_assert(kThreads == 32 * kWarps && kStepKeys % 16 == 0 && kKeys <= kThreads && kStages >= 2);
  static_assert(!H::value_transform && !S::kLatent && S::kScaling == Scaling::none);

  // Where a token's key and value lie; null: no row sees it.
  struct Source {
    const char *k, *v;
    i64 bits;
    int pos;
  };

 public:
  struct Shared {
    Scratch<S> scratch;
    FusedRow rows[kRows];
    VisibleRange visible;
    float lse[kRows];
    float base[kWarpsN][kRows], sum[kWarpsN][kRows];
    int not_finite[kWarps];
    Source sources[kRing][kKeys];
    // Queries, then stages of keys and values; at last the outputs of each of kWarpsN warps.
    alignas(128) u8 tiles[kTileBytes > kOutBytes ? kTileBytes : kOutBytes];
  };

  static constexpr int kSharedBytes = sizeof(Shared);

  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    const int num_rows = item.num_rows * call.group_size;
    for (int kv_head = item.kv_head_begin; kv_head < item.kv_head_end; ++kv_head)
      for (int first = 0; first < num_rows; first += kRows) {
        const int n = num_rows - first < kRows ? num_rows - first : kRows;
        Mma(call, p, item, kv_head, first, n).run();
      }
  }

 private:
  WEFT_INLINE Mma(const Call& call, const P& p, const ItemRecord& item, int kv_head, int first, int n)
      : call_(call),
        p_(p),
        item_(item),
        partial_(partial_of(call, item)),
        kv_head_(kv_head),
        first_(first),
        n_(n),
        end_(end_of(*call.plan, item)),
        by_position_(S::kBlockSparse && call.plan->positions_per_page > 0),
        tokens_(call, item) {}

  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }
  WEFT_INLINE static Keys queries() { return {shared().tiles}; }
  WEFT_INLINE static Keys keys_of(int stage) { return {shared().tiles + Keys::bytes(kRows) + stage * kStageBytes}; }
  WEFT_INLINE static Values values_of(int stage) { return {keys_of(stage).data + Keys::bytes(kKeys)}; }
  WEFT_INLINE static float* out() { return reinterpret_cast<float*>(shared().tiles); }
  WEFT_INLINE static int warp_m() { return kWarpsN == 1 ? ptx::warp() : ptx::warp() / kWarpsN; }
  WEFT_INLINE static int warp_n() { return kWarpsN == 1 ? 0 : ptx::warp() % kWarpsN; }
  WEFT_INLINE static int first_row() { return 16 * kFragments * warp_m(); }

  // What a value that is not finite would make of rows that do not see it is seen at the end: then all is done again with such
  // values left out, and they are added to the rows that see them.
  WEFT_INLINE void run() {
    load_rows();
    for (bool apart = false;; apart = true) {
      load_queries();
      multiply(apart);
      const bool is_finite = join();
      if (!apart && !is_finite && may_differ()) continue;
      if (apart) add_not_finite();
      break;
    }
    Shared& s = shared();
    for (int r = ptx::warp(); r < n_; r += kWarps)
      write_state<S, F>(call_, p_, partial_, s.rows[r], (first_ + r) / call_.group_size, out() + r * kOutStride,
                        s.lse[r]);
    ptx::cta_sync();
  }

  // Whether rows may see different keys.
  WEFT_INLINE bool may_differ() const { return item_.num_rows > 1 || by_position_ || call_.plan->bits_index.count > 0; }

  // Rows behind the last one are that one again, so that functors see what exists. The last threads begin: the first ones
  // look for pages meanwhile.
  WEFT_INLINE void load_rows() {
    Shared& s = shared();
    for (int r = kThreads - 1 - ptx::thread_index(); r < kRows; r += kThreads)
      s.rows[r] = fused_row(call_, item_, kv_head_, first_ + (r < n_ ? r : n_ - 1));
    WEFT_UNROLL
    for (int tile = 0; tile < kStages; ++tile) first_pages_[tile] = first_page_of(item_.kv_begin + tile * kKeys);
    ptx::cta_sync();
    if (ptx::warp() == 0) {
      const VisibleRange visible = hull_of(s.rows, n_);
      if (ptx::lane() == 0) s.visible = visible;
    }
    ptx::cta_sync();
  }

  template <int kTileRows, int kDim, int kColumns, class From>
  WEFT_INLINE void copy(const tile::SharedTile<kColumns>& to, const From& from) const {
    constexpr int kChunks = tile::SharedTile<kColumns>::kChunks;
    constexpr int kTogether = kThreads / kChunks;  // rows that the CTA copies at a time
    const int chunk = ptx::thread_index() % kChunks, first = ptx::thread_index() / kChunks;
    WEFT_UNROLL
    for (int i = 0; i < (kTileRows + kTogether - 1) / kTogether; ++i) {
      const int row = first + i * kTogether;
      if ((kTileRows % kTogether != 0 || kThreads % kChunks != 0) && (row >= kTileRows || first >= kTogether)) break;
      const char* const source = from(row);
      const bool is_there = source != nullptr && (kDim == kColumns || chunk < kDim / 8);
      ptx::cp_async_16(to.chunk(row, chunk), is_there ? source + 16 * chunk : call_.q.data, is_there ? 16 : 0);
    }
  }

  WEFT_INLINE const char* query(int r) const {
    const FusedRow& row = shared().rows[r];
    return call_.q.data + row.q_row * call_.q.row_stride + row.head * call_.q.head_stride;
  }

  WEFT_INLINE void load_queries() {
    if constexpr (!H::query_transform) {
      copy<kRows, kDimQk>(queries(), [&](int r) { return r < n_ ? query(r) : nullptr; });
      ptx::cp_async_commit();
      return;
    }
    for (int r = ptx::warp(); r < kRows; r += kWarps) {
      const FusedRow& row = shared().rows[r];
      float* const raw = shared().scratch.vectors[ptx::warp()];
      for (int i = ptx::lane(); i < kDimQk; i += 32) raw[i] = element<T>(query(r), i);
      ptx::warp_sync();
      auto state = F::enter(p_, row.request);
      const Vec x = vector_of<kDimQk>(raw);
      const Row of{row.request, row.idx, row.pos, row.head, 0.f};
      for (int i = ptx::lane(); i < kPadQk; i += 32) {
        float y = 0;
        if constexpr (H::query_transform)
          if (i < kDimQk) y = static_cast<float>(state.variant.query_transform(p_, x, i, of));
        tile::store(reinterpret_cast<T*>(queries().chunk(r, i / 8)) + i % 8, y);
      }
      ptx::warp_sync();
    }
  }

  // ---------------------------------------------------------------- tiles of keys

  // The first tile from `at` on of which some row sees a key; with WEFT_CHECK, any.
  WEFT_INLINE int seen_from(int at) const {
    if (has_gaps_)
      while (at < end_ && !touches(at)) at += kKeys;
    return at;
  }
  WEFT_INLINE bool touches(int at) const {
    if (by_position_) return true;
    const int first = item_.first_pos + at;
    return shared().visible.touches(first, first + (end_ - at < kKeys ? end_ - at : kKeys));
  }
  // Where the keys that rows see begin, by tiles, and end. Between them are gaps only where rows have two intervals.
  WEFT_INLINE int begin_of_seen() {
    const VisibleRange& visible = shared().visible;
    const bool has_two = visible.low[1] < visible.high[1];
    has_gaps_ = !by_position_ && has_two && call_.mask_error == nullptr;
    if (by_position_ || call_.mask_error != nullptr) return item_.kv_begin;
    const int low = (has_two && visible.low[1] < visible.low[0] ? visible.low[1] : visible.low[0]) - item_.first_pos;
    const int high = (visible.high[1] > visible.high[0] ? visible.high[1] : visible.high[0]) - item_.first_pos;
    end_ = low >= high ? item_.kv_begin : high < end_ ? high : end_;  // no row may see any
    if (low >= end_) return item_.kv_begin > end_ ? item_.kv_begin : end_;
    return low <= item_.kv_begin ? item_.kv_begin : item_.kv_begin + (low - item_.kv_begin) / kKeys * kKeys;
  }

  // A token of a tile is found in two steps: its page's id, which is read while another tile is multiplied, and its rows.
  WEFT_INLINE int page_of(int at) const {
    const int t = at + ptx::thread_index();
    return ptx::thread_index() < kKeys && t < end_ ? tokens_.page(t) : 0;
  }
  WEFT_INLINE int first_page_of(int at) const {  // where the end may still be on its way
    return ptx::thread_index() < kKeys ? tokens_.page_if_listed(at + ptx::thread_index()) : 0;
  }
  WEFT_INLINE void keep(int tile, int at, int page) const {
    if (ptx::thread_index() >= kKeys) return;
    Source source = {nullptr, nullptr, -1, 0};
    const int t = at + ptx::thread_index();
    if (t < end_) {
      source.pos = S::kBlockSparse ? position_of(*call_.plan, item_, t) : item_.first_pos + t;
      if (shared().visible.touches(source.pos, source.pos + 1)) {
        if constexpr (S::kBlockSparse) source.bits = bits_of_token(*call_.plan, item_, t);
        source.k = tokens_.row(call_.k, page, t, kv_head_);
        source.v = tokens_.row(call_.v, page, t, kv_head_);
      }
    }
    shared().sources[tile % kRing][ptx::thread_index()] = source;
  }
  WEFT_INLINE void fetch(int tile) const {
    const Source* const sources = shared().sources[tile % kRing];
    copy<kKeys, kDimQk>(keys_of(tile % kStages), [&](int row) { return sources[row].k; });
    copy<kKeys, kDimVo>(values_of(tile % kStages), [&](int row) { return sources[row].v; });
  }

  WEFT_INLINE void multiply(bool apart) {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      state_[m] = tile::RowState::empty();
      WEFT_UNROLL
      for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o_[m][f][e] = 0;
    }
    // Tiles are located kStages ahead, and fetched kStages - 1 ahead.
    const int first = seen_from(begin_of_seen());
    int to_locate = first, to_fetch = first;
    WEFT_UNROLL
    for (int tile = 0; tile < kStages; ++tile, to_locate = seen_from(to_locate + kKeys))
      keep(tile, to_locate, to_locate == item_.kv_begin + tile * kKeys ? first_pages_[tile] : page_of(to_locate));
    WEFT_NO_UNROLL
    for (int tile = 1 - kStages, at = first; at < end_; ++tile) {
      if (tile >= 0) ptx::cp_async_wait<kStages - 2>();
      ptx::cta_sync();  // the tile is there, and the one before it was read
      if (to_fetch < end_) fetch(tile + kStages - 1);
      ptx::cp_async_commit();
      to_fetch = seen_from(to_fetch + kKeys);
      if (tile < 0) continue;
      const int page = page_of(to_locate);
      multiply_tile(tile, at, apart);
      keep(tile + kStages, to_locate, page);
      to_locate = seen_from(to_locate + kKeys);
      at = seen_from(at + kKeys);
    }
    ptx::cp_async_wait<0>();
    ptx::cta_sync();
  }

  WEFT_INLINE void multiply_tile(int tile, int at, bool apart) {
    const int stage = tile % kStages;
    if constexpr (H::key_transform) transform_keys(tile, at);
    if (apart) leave_out(values_of(stage));
    WEFT_NO_UNROLL
    for (int key = warp_n() * kWarpKeys; key < (warp_n() + 1) * kWarpKeys; key += kStepKeys) {
      float s[kFragments][kStepKeys / 8][4] = {};
      multiply_keys(keys_of(stage), key, s);
      const float to_log2 = make_logits(tile, at, key, s);
      if constexpr (F::kSoftmax) exponentiate(to_log2, s);
      multiply_values(values_of(stage), key, s);
    }
  }

  // Probabilities, and what was summed before relative to the new maximum. Most tiles leave the maxima as they are.
  WEFT_INLINE void exponentiate(float to_log2, float (&s)[kFragments][kStepKeys / 8][4]) {
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) {
      float shrink[2];
      state_[m].step(s[m], to_log2, shrink);
      if (ptx::ballot(shrink[0] != 1.f || shrink[1] != 1.f) == 0) continue;
      WEFT_UNROLL
      for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) o_[m][f][e] *= shrink[e / 2];
    }
  }

  WEFT_INLINE void multiply_keys(const Keys& keys, int first, float (&s)[kFragments][kStepKeys / 8][4]) const {
    WEFT_UNROLL
    for (int k = 0; k < kPadQk; k += 16) {
      u32 a[kFragments][4];
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) tile::load_a(a[m], queries(), first_row() + 16 * m, k);
      WEFT_UNROLL
      for (int key = 0; key < kStepKeys; key += 16) {
        u32 b[4];
        tile::load_b(b, keys, first + key, k);
        WEFT_UNROLL
        for (int m = 0; m < kFragments; ++m) {
          tile::multiply<T>(s[m][key / 8], a[m], b[0], b[1]);
          tile::multiply<T>(s[m][key / 8 + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // Which keys of a tile a row sees: those of two ranges that begin at `low`.
  struct Ranges {
    int low[2];
    unsigned length[2];
    WEFT_INLINE bool holds(int key) const {
      return static_cast<unsigned>(key - low[0]) < length[0] || static_cast<unsigned>(key - low[1]) < length[1];
    }
  };
  WEFT_INLINE static Ranges ranges_of(const Visible& visible, int begin, int keys) {
    Ranges ranges;
    WEFT_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int upper = visible.upper[i] - begin < keys ? visible.upper[i] - begin : keys;
      ranges.low[i] = visible.lower[i] - begin;
      ranges.length[i] = upper > ranges.low[i] ? static_cast<unsigned>(upper - ranges.low[i]) : 0;
    }
    return ranges;
  }

  // Scores become logits, hidden ones what hides them; times what is returned they are relative to 2.
  WEFT_INLINE float make_logits(int tile, int at, int first, float (&s)[kFragments][kStepKeys / 8][4]) const {
    const Shared& shared = Mma::shared();
    const Source* const sources = shared.sources[tile % kRing];
    const int begin = item_.first_pos + at, keys = end_ - at < kKeys ? end_ - at : kKeys;
    bool all = keys == kKeys && !by_position_ && shared.visible.is_seen_by_all(begin, begin + kKeys);
    if constexpr (S::kBlockSparse) all = all && call_.plan->bits_index.count == 0;
    if constexpr (kFunctor) {
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const FusedRow& row = shared.rows[first_row() + 16 * m + tile::fragment_row(half)];
        WEFT_UNROLL
        for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
        for (int e = 0; e < 2; ++e) {
          // Of a key that is not there, the last one's.
          int key = first + 8 * f + tile::fragment_column() + e;
          key = key < keys ? key : keys - 1;
          float& x = s[m][f][2 * half + e];
          x = F::logit(p_, row, begin + key, S::kBlockSparse ? sources[key].pos : begin + key, x);
        }
      }
    } else if (!(p_.sm_scale > 0.f)) {  // the largest score is not the largest logit
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
      for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 4; ++e) s[m][f][e] *= p_.sm_scale;
    }
    if (!all) hide(sources, at, begin, keys, first, s);
    return !kFunctor && p_.sm_scale > 0.f ? p_.sm_scale * tile::kLog2E : tile::kLog2E;
  }

  WEFT_INLINE void hide(const Source* sources, int at, int begin, int keys, int first,
                        float (&s)[kFragments][kStepKeys / 8][4]) const {
    bool any = false;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const FusedRow& row = shared().rows[first_row() + 16 * m + tile::fragment_row(half)];
      const Ranges ranges = ranges_of(row.visible, begin, keys);
      WEFT_UNROLL
      for (int f = 0; f < kStepKeys / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int key = first + 8 * f + tile::fragment_column() + e;
        bool seen;
        if constexpr (S::kBlockSparse)
          seen = key < keys && row.visible.holds(sources[key].pos) &&
                 bits_show(*call_.plan, sources[key].bits, row.of_block, at + key);
        else
          seen = ranges.holds(key);
        any = any || seen;
        float& x = s[m][f][2 * half + e];
        x = seen ? x : F::hidden();
      }
    }
    if (call_.mask_error != nullptr && any && !touches(at)) ptx::atomic_or(call_.mask_error, 1);
  }

  // Two fragments of a product are the halves of the next one's left operand.
  WEFT_INLINE void multiply_values(const Values& values, int first, const float (&s)[kFragments][kStepKeys / 8][4]) {
    WEFT_UNROLL
    for (int key = 0; key < kStepKeys; key += 16) {
      const int f = key / 8;
      u32 p[kFragments][4];
      WEFT_UNROLL
      for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
      for (int i = 0; i < 4; ++i) p[m][i] = tile::pack<T>(s[m][f + i / 2][i % 2 * 2], s[m][f + i / 2][i % 2 * 2 + 1]);
      WEFT_UNROLL
      for (int d = 0; d < kPadVo; d += 16) {
        u32 b[4];
        tile::load_b_rows(b, values, first + key, d);
        WEFT_UNROLL
        for (int m = 0; m < kFragments; ++m) {
          tile::multiply<T>(o_[m][d / 8], p[m], b[0], b[1]);
          tile::multiply<T>(o_[m][d / 8 + 1], p[m], b[2], b[3]);
        }
      }
    }
  }

  // The tile's keys as their hook makes them, rounded to what is multiplied.
  WEFT_INLINE void transform_keys(int tile, int at) const {
    const Keys keys = keys_of(tile % kStages);
    const Source* const sources = shared().sources[tile % kRing];
    for (int key = ptx::warp(); key < kKeys; key += kWarps) {
      if (sources[key].k == nullptr) continue;
      float* const raw = shared().scratch.vectors[ptx::warp()];
      const auto at_element = [&](int i) { return reinterpret_cast<T*>(keys.chunk(key, i / 8)) + i % 8; };
      for (int i = ptx::lane(); i < kDimQk; i += 32) raw[i] = tile::to_float(*at_element(i));
      ptx::warp_sync();
      auto state = F::enter(p_, item_.request);
      const Vec x = vector_of<kDimQk>(raw);
      const Row of{item_.request, item_.first_pos + at + key, sources[key].pos, kv_head_, 0.f};
      for (int i = ptx::lane(); i < kDimQk; i += 32)
        if constexpr (H::key_transform)
          tile::store(at_element(i), static_cast<float>(state.variant.key_transform(p_, x, i, of)));
      ptx::warp_sync();
    }
    ptx::cta_sync();
  }

  // ---------------------------------------------------------------- values that are not finite

  WEFT_INLINE static bool is_finite(float x) { return x - x == 0.f; }

  WEFT_INLINE static void leave_out(const Values& values) {
    for (int i = ptx::thread_index(); i < kKeys * kPadVo; i += kThreads) {
      T* const x = reinterpret_cast<T*>(values.chunk(i / kPadVo, i % kPadVo / 8)) + i % 8;
      if (!is_finite(tile::to_float(*x))) x->bits = 0;
    }
    ptx::cta_sync();
  }

  // A thread has some elements of all rows' outputs.
  WEFT_INLINE void add_not_finite() const {
    const Shared& s = shared();
    for (int t = item_.kv_begin; t < end_; ++t) {
      const int pos = position_of(*call_.plan, item_, t);
      if (!s.visible.touches(pos, pos + 1)) continue;
      const i64 bits = bits_of_token(*call_.plan, item_, t);
      const char* const row = row_of(call_.v, place_of(call_, item_, t), kv_head_);
      for (int i = ptx::thread_index(); i < kDimVo; i += kThreads) {
        const float v = element<T>(row, i);
        if (is_finite(v)) continue;
        for (int r = 0; r < n_; ++r)
          if (s.rows[r].visible.holds(pos) && bits_show(*call_.plan, bits, s.rows[r].of_block, t))
            out()[r * kOutStride + i] += v;
      }
    }
    ptx::cta_sync();
  }

  // ---------------------------------------------------------------- states

  // States to shared memory, those of the warps that share a row as one. Returns whether all outputs are finite.
  WEFT_INLINE bool join() {
    Shared& s = shared();
    float* const own = out() + warp_n() * kRows * kOutStride;
    bool finite = true;
    WEFT_UNROLL
    for (int m = 0; m < kFragments; ++m) WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = first_row() + 16 * m + tile::fragment_row(half);
      float factor = 1;
      if constexpr (F::kSoftmax) {
        const float total = state_[m].total(half);
        if (kWarpsN == 1) factor = total == 0.f ? 0.f : 1.f / total;
        if (ptx::lane() % 4 == 0) {
          s.base[warp_n()][r] = state_[m].base[half];
          s.sum[warp_n()][r] = total;
          if (kWarpsN == 1) s.lse[r] = lse_of_base2(state_[m].base[half], total);
        }
      }
      WEFT_UNROLL
      for (int f = 0; f < kPadVo / 8; ++f) WEFT_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float x = o_[m][f][2 * half + e] * factor;
        finite = finite && (is_finite(x) || r >= n_);
        own[r * kOutStride + 8 * f + tile::fragment_column() + e] = x;
      }
    }
    const unsigned ballot = ptx::ballot(!finite);
    if (ptx::lane() == 0) s.not_finite[ptx::warp()] = ballot != 0;
    ptx::cta_sync();
    WEFT_UNROLL
    for (int w = 0; w < kWarps; ++w) finite = finite && s.not_finite[w] == 0;
    if constexpr (kWarpsN > 1) {
      for (int r = ptx::warp(); r < n_; r += kWarps) join_row(r);
      ptx::cta_sync();
    }
    return finite;
  }

  // By one warp.
  WEFT_INLINE static void join_row(int r) {
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
    for (int i = ptx::lane(); i < kDimVo; i += 32) {
      float sum = 0;
      WEFT_UNROLL
      for (int w = 0; w < kWarpsN; ++w)
        sum += (F::kSoftmax ? weight[w] : 1.f) * out()[(w * kRows + r) * kOutStride + i];
      out()[r * kOutStride + i] = sum * factor;
    }
    if (ptx::lane() == 0) s.lse[r] = F::kSoftmax ? lse_of_base2(base, total) : 0.f;
  }

  const Call& call_;
  const P& p_;
  const ItemRecord& item_;
  const PartialStates partial_;
  const int kv_head_, first_, n_;
  int end_;
  const bool by_position_;
  bool has_gaps_ = false;
  int first_pages_[kStages];  // of this thread's tokens of the item's first tiles
  const Tokens<S> tokens_;
  tile::RowState state_[kFragments];
  float o_[kFragments][kPadVo / 8][4];
};

}  // namespace weft::attention::cuda
