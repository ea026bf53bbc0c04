// The plain path: every element type, dim, stride and hook, in fp32 on CUDA cores. A CTA takes kRows fused rows of one
// KV head at a time through tiles of kKeys keys:
//   tokens -> keys to shared memory, as floats -> scores -> probabilities, and values in the keys' place
//          -> sums of values
// Tiles begin at multiples of kKeys from the item's first key, so a row's bits follow from its own keys alone.
#pragma once

#include "attention/cuda/kernels/merge.h"
#include "attention/cuda/kernels/output.h"
#include "attention/cuda/kernels/vectors.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda {

// S: the spec as constants (cuda/text.cpp), F: Functors.
template <class S, class F>
class Plain {
  using P = typename F::P;
  using H = typename F::OfVariant;
  static constexpr int kRows = S::kRows, kKeys = S::kKeys, kThreads = S::kThreads, kWarps = kThreads / 32;
  static constexpr int kDimQk = S::kDimQk, kDimVo = S::kDimVo;
  static constexpr int kMaxDim = kDimQk > kDimVo ? kDimQk : kDimVo;
  // Lanes that read 16 bytes of different rows at one column do not meet in a bank: dims are multiples of 8.
  static constexpr int kStride = kMaxDim + 4;
  static constexpr int kScoreStride = kRows + 4;
  static constexpr int kGroups = kThreads / kKeys, kRowsPerThread = (kRows + kGroups - 1) / kGroups;
  static constexpr int kColumns = (kDimVo + kThreads - 1) / kThreads;
  static_assert(kKeys <= 32 && 32 % kKeys == 0 && kKeys >= kRows && kRows % 4 == 0 && kThreads % 32 == 0);

  struct alignas(16) Four {
    float x[4];
  };
  using Token = PlainToken;

 public:
  // What lies in the CTA's shared memory.
  struct Shared {
    Scratch<S> scratch;
    alignas(16) float queries[kRows * kDimQk];
    alignas(16) float tile[kKeys * kStride];  // of keys, then of values; at last of outputs
    alignas(16) float scores[kKeys * kScoreStride];
    float shrink[kRows], maximum[kRows], sum[kRows];
    unsigned seen[kRows];  // bit k: the row sees key k of the tile
    FusedRow rows[kRows];
    VisibleRange visible;
    Token tokens[kKeys];
  };

  static constexpr int kSharedBytes = sizeof(Shared);
  static_assert(
      kSharedBytes ==
      plain_shared_bytes({.dim_qk = kDimQk, .dim_vo = kDimVo, .threads = kThreads, .rows = kRows, .keys = kKeys}));

  WEFT_INLINE static Shared& shared() { return *reinterpret_cast<Shared*>(ptx::shared_memory()); }

  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    for_row_tiles<kRows>(call, item,
                         [&](int kv_head, int first, int n) { Plain(call, p, item, kv_head, first, n).run(); });
  }

 private:
  WEFT_INLINE Plain(const Call& call, const P& p, const ItemRecord& item, int kv_head, int first, int n)
      : call_(call), p_(p), item_(item), partial_(partial_of(call, item)), kv_head_(kv_head), first_(first), n_(n) {}

  WEFT_INLINE void run() {
    load_rows();
    const int end = end_of(call_, item_);
    for (int begin = item_.kv_begin; begin < end; begin += kKeys) {
      const bool left_out = !is_seen(begin, end);
      if (left_out && call_.mask_error == nullptr) continue;
      const int keys = end - begin < kKeys ? end - begin : kKeys;
      locate(begin, keys);
      stage<true>(begin, keys);
      ptx::cta_sync();
      multiply_keys(begin, keys, left_out);
      ptx::cta_sync();
      exponentiate();
      stage<false>(begin, keys);
      ptx::cta_sync();
      multiply_values(keys);
      ptx::cta_sync();
    }
    finish();
  }

  // Rows, their queries, and empty states.
  WEFT_INLINE void load_rows() {
    Shared& s = shared();
    for (int r = ptx::thread_index(); r < n_; r += kThreads) {
      s.rows[r] = fused_row(call_, item_, kv_head_, first_ + r);
      s.maximum[r] = -infinity();
      s.sum[r] = 0;
      s.shrink[r] = 1;
    }
    ptx::wait_for_previous_kernel();  // which makes queries, keys and values, and no plan
    ptx::cta_sync();
    if (ptx::warp() == 0) {
      const VisibleRange visible = hull_of(s.rows, n_);
      if (ptx::lane() == 0) s.visible = visible;
    }
    for (int r = ptx::warp(); r < n_; r += kWarps) {
      float* const to = s.queries + r * kDimQk;
      load_query<S, F>(call_, p_, s.rows[r], s.scratch.vectors[ptx::warp()], [&](int i, float x) { to[i] = x; });
    }
    ptx::cta_sync();
  }

  // Whether any row sees any key of the tile, by intervals; where keys are in any order, perhaps.
  WEFT_INLINE bool is_seen(int begin, int end) const {
    if (header().positions_per_page > 0) return true;
    const int first = item_.first_pos + begin;
    return shared().visible.touches(first, first + (end - begin < kKeys ? end - begin : kKeys));
  }

  WEFT_INLINE void locate(int begin, int keys) {
    const int thread = ptx::thread_index();
    if (thread < keys) {
      Token& token = shared().tokens[thread];
      const Place place = place_of(call_, item_, begin + thread);
      token.k = row_of(call_.k, place, kv_head_);
      token.v = row_of(call_.v, place, kv_head_);
      if constexpr (S::kLatent) token.rope = call_.rope_dim > 0 ? row_of(call_.rope, place, 0) : nullptr;
      if constexpr (S::kScaling == Scaling::token) {
        token.k_scale = *reinterpret_cast<const float*>(row_of(call_.k_scale, place, kv_head_));
        token.v_scale = *reinterpret_cast<const float*>(row_of(call_.v_scale, place, kv_head_));
      }
      token.pos = position_of(call_, item_, begin + thread);
      token.bits = bits_of_token(call_, item_, begin + thread);
    }
    ptx::cta_sync();
  }

  // Keys or values of the tile to shared memory, as floats, scaled, and as hooks make them. A warp takes some tokens at
  // a time, whose loads are under way together.
  template <bool kKeysOrValues>
  WEFT_INLINE void stage(int begin, int keys) {
    constexpr bool kIsKey = kKeysOrValues, kHook = kIsKey ? H::key_transform : H::value_transform;
    constexpr int kDim = kIsKey ? kDimQk : kDimVo, kPerLane = (kDim + 31) / 32;
    constexpr int kTogether = kHook ? 1 : kPerLane >= 8 ? 2 : kKeys / kWarps < 8 ? kKeys / kWarps : 8;
    Shared& s = shared();
    for (int first = ptx::warp() * kTogether; first < keys; first += kWarps * kTogether) {
      float x[kTogether][kPerLane];
      WEFT_UNROLL
      for (int t = 0; t < kTogether; ++t)
        if (first + t < keys) load<kIsKey, kDim>(s.tokens[first + t], x[t]);
      WEFT_UNROLL
      for (int t = 0; t < kTogether; ++t) {
        if (first + t >= keys) continue;
        float* const to = s.tile + (first + t) * kStride;
        float* const raw = kHook ? s.scratch.vectors[ptx::warp()] : to;
        WEFT_UNROLL
        for (int i = 0; i < kPerLane; ++i)
          if (const int at = ptx::lane() + 32 * i; at < kDim) raw[at] = x[t][i];
        if constexpr (kHook)
          transform_token<F, kIsKey, kDim>(p_, item_, kv_head_, begin + first + t, s.tokens[first + t].pos, raw,
                                           [&](int i, float x) { to[i] = x; });
      }
    }
  }

  // This lane's elements of a token, scaled.
  template <bool kIsKey, int kDim>
  WEFT_INLINE void load(const Token& token, float (&x)[(kDim + 31) / 32]) const {
    using Cache = typename S::Cache;
    const char* const row = kIsKey ? token.k : token.v;
    float scale = 1;
    if constexpr (S::kScaling == Scaling::head) {
      const TokensView& view = kIsKey ? call_.k_scale : call_.v_scale;
      scale = *reinterpret_cast<const float*>(view.data + kv_head_ * view.head_stride);
    } else if constexpr (S::kScaling == Scaling::token) {
      scale = kIsKey ? token.k_scale : token.v_scale;
    }
    const int in_row = S::kLatent && kIsKey ? kDim - call_.rope_dim : kDim;  // the rest lies in `rope`
    WEFT_UNROLL
    for (int i = 0; i < (kDim + 31) / 32; ++i) {
      const int at = ptx::lane() + 32 * i;
      if (at >= kDim) continue;
      x[i] = S::kLatent && at >= in_row ? element<Cache>(token.rope, at - in_row) : element<Cache>(row, at);
      if constexpr (S::kScaling != Scaling::none) x[i] *= scale;
    }
  }

  // Logits of the tile, and which keys each row sees: a thread has one key and every kGroups-th row.
  WEFT_INLINE void multiply_keys(int begin, int keys, bool left_out) {
    Shared& s = shared();
    const int key = ptx::thread_index() % kKeys, group = ptx::thread_index() / kKeys;
    float products[kRowsPerThread] = {};
    const float* const k = s.tile + key * kStride;
    if (key < keys) {
      for (int d = 0; d < kDimQk; d += 4) {
        const Four of_key = *reinterpret_cast<const Four*>(k + d);
        WEFT_UNROLL
        for (int i = 0; i < kRowsPerThread; ++i) {
          const int r = group + kGroups * i;
          if (r >= n_) continue;
          const Four q = *reinterpret_cast<const Four*>(s.queries + r * kDimQk + d);
          WEFT_UNROLL
          for (int e = 0; e < 4; ++e) products[i] += q.x[e] * of_key.x[e];
        }
      }
    }
    WEFT_UNROLL
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int r = group + kGroups * i;
      bool sees = false;
      if (r < n_ && key < keys) {
        const FusedRow& row = s.rows[r];
        const Token& token = s.tokens[key];
        sees = row.visible.holds(token.pos) && bits_show(call_, token.bits, row.of_block, begin + key);
        if (sees && left_out) ptx::atomic_or(call_.mask_error, 1);
      }
      float score = F::hidden();
      if (sees) score = F::logit(p_, s.rows[r], item_.first_pos + begin + key, s.tokens[key].pos, products[i]);
      const unsigned ballot = ptx::ballot(sees);
      if (r >= n_) continue;
      s.scores[key * kScoreStride + r] = score;
      constexpr unsigned kAll = kKeys == 32 ? ~0u : (1u << (kKeys % 32)) - 1;
      if (key == 0) s.seen[r] = ballot >> (ptx::lane() / kKeys * kKeys) & kAll;
    }
  }

  // Probabilities relative to each row's maximum so far, and by what its sums shrink: a warp has a row, a lane a key.
  WEFT_INLINE void exponentiate() {
    if constexpr (!F::kSoftmax) return;
    Shared& s = shared();
    for (int r = ptx::warp(); r < n_; r += kWarps) {
      float* const score = s.scores + ptx::lane() % kKeys * kScoreStride + r;
      const float logit = ptx::lane() < kKeys ? *score : -infinity();
      const float before = s.maximum[r], maximum = ptx::larger(before, tile::lane_max(logit));
      const float base = tile::base_of(maximum, tile::kLog2E);
      float exponent = ptx::multiply_add(logit, tile::kLog2E, -base);
      if (tile::is_far(base)) [[unlikely]]
        exponent = ptx::product(logit - maximum, tile::kLog2E);
      const float probability = ptx::exp2_fast(exponent);
      const float total = tile::lane_sum(probability), shrink = tile::shrink_of(before, maximum, tile::kLog2E);
      ptx::warp_sync();
      if (ptx::lane() < kKeys) *score = probability;
      if (ptx::lane() == 0) {
        s.maximum[r] = maximum;
        s.sum[r] = s.sum[r] * shrink + total;
        s.shrink[r] = shrink;
      }
    }
  }

  // A thread has every kThreads-th element of each row's sum.
  WEFT_INLINE void multiply_values(int keys) {
    const Shared& s = shared();
    const unsigned whole = keys == 32 ? ~0u : (1u << keys) - 1;
    bool all = true;
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= n_) continue;
      all = all && s.seen[r] == whole;
      if constexpr (F::kSoftmax) {
        const float shrink = s.shrink[r];
        WEFT_UNROLL
        for (int c = 0; c < kColumns; ++c) sums_[r][c] *= shrink;
      }
    }
    if (all)
      add_values<true>(keys);
    else
      add_values<false>(keys);
  }

  // A value reaches only rows that see it, whatever it is: 0 times NaN is NaN.
  template <bool kAllSeen>
  WEFT_INLINE void add_values(int keys) {
    const Shared& s = shared();
    for (int key = 0; key < keys; ++key) {
      float v[kColumns];
      WEFT_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int at = ptx::thread_index() + kThreads * c;
        v[c] = at < kDimVo ? s.tile[key * kStride + at] : 0.f;
      }
      WEFT_UNROLL
      for (int first = 0; first < kRows; first += 4) {
        if (first >= n_) break;
        const Four p = *reinterpret_cast<const Four*>(s.scores + key * kScoreStride + first);
        WEFT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int r = first + e;
          if (r >= n_ || (!kAllSeen && (s.seen[r] >> key & 1) == 0)) continue;
          WEFT_UNROLL
          for (int c = 0; c < kColumns; ++c) sums_[r][c] += p.x[e] * v[c];
        }
      }
    }
  }

  // States to the output, or to the item's partial.
  WEFT_INLINE void finish() {
    Shared& s = shared();
    WEFT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= n_) continue;
      const float total = s.sum[r], factor = !F::kSoftmax ? 1.f : total == 0.f ? 0.f : 1.f / total;
      WEFT_UNROLL
      for (int c = 0; c < kColumns; ++c)
        if (const int at = ptx::thread_index() + kThreads * c; at < kDimVo)
          s.tile[r * kStride + at] = sums_[r][c] * factor;
    }
    ptx::cta_sync();
    for (int r = ptx::warp(); r < n_; r += kWarps) {
      const FusedRow& row = s.rows[r];
      const float* const o = s.tile + r * kStride;
      const tile::Lse lse = F::kSoftmax ? tile::lse_of(s.maximum[r], s.sum[r], 1.f) : tile::Lse{};
      write_state<S, F>(call_, p_, partial_, row, (first_ + r) / call_.group_size, o, lse);
    }
    ptx::cta_sync();
  }

  const Call& call_;
  const P& p_;
  const ItemRecord& item_;
  const PartialStates partial_;
  const int kv_head_, first_, n_;
  float sums_[kRows][kColumns] = {};
};

}  // namespace weft::attention::cuda
