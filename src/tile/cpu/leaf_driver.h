// The leaf's loops: what turns a variant's hooks, written for one score or one element, into functions over a score
// tile (softmax included) and over vectors. One instance a variant: Leaf<P, V, M, bf16>::leaf.
//
// A row takes two passes. The first scales, transforms and masks its scores and finds the maximum; on a full tile of
// plain attention it only finds the maximum. The second makes probabilities and their sum. Scores go through the
// first in blocks of 32: the block is a local array, so no tensor of the variant can alias it and what does not
// change within a block is loaded once.
//
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft::detail {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef float LanesUnaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
inline constexpr int kBlock = abi::kColumnStep;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr int kMaxDim = 576;
inline constexpr int kGroup = 8;  // rows that take the two passes together

// Largest of the lanes and `start`, NaN left out: NaN reaches the result through the exponential.
WEFT_INLINE float largest(Lanes lanes, float start) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  return lanes[0] > start ? lanes[0] : start;
}
WEFT_INLINE float total(Lanes lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// weft::exp2 for arguments that are 0 or less, or NaN. Written with vectors, as the comparison of a loop over scalars
// would become two instructions instead of a maximum.
WEFT_INLINE Lanes exp2_lanes(Lanes x) {
  typedef unsigned Bits __attribute__((vector_size(4 * kLanes)));
  const Lanes low = Lanes{} - 126.f;
  x = x < low ? low : x;
  const Lanes t = x + (kRound + 126.f);
  const Lanes f = x - (t - (kRound + 126.f));
  const Bits scale = reinterpret_cast<Bits>(t) << 23;
  return reinterpret_cast<Lanes>(scale) * exp2_fraction(f);
}

// Rounded to nearest even; a NaN stays one.
WEFT_INLINE unsigned short bf16_of(float x) {
  const unsigned u = to_bits(x);
  const unsigned rounded = u + 0x7fffu + ((u >> 16) & 1u);
  return static_cast<unsigned short>((x != x ? (u | 0x00400000u) : rounded) >> 16);
}
WEFT_INLINE void store_bf16(unsigned short* __restrict to, const float* __restrict from) {
#if defined(__AVX512BF16__)
  typedef unsigned short Half32 __attribute__((vector_size(64)));
  typedef unsigned short Half32Unaligned __attribute__((vector_size(64), aligned(2), may_alias));
  const Lanes low = *reinterpret_cast<const LanesUnaligned*>(from);
  const Lanes high = *reinterpret_cast<const LanesUnaligned*>(from + 16);
  Half32 packed;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(packed) : "v"(low), "v"(high));
  *reinterpret_cast<Half32Unaligned*>(to) = packed;
#else
  for (int u = 0; u < kBlock; ++u) to[u] = bf16_of(from[u]);
#endif
}

// P: parameters, V: the variant, M: the mask of the spec.
template <class P, class V, class M, bool bf16>
struct Leaf {
  using HV = Hooks<V, P>;
  using HM = Hooks<M, P>;
  static constexpr bool kSoftmax = HV::use_softmax;
  static constexpr bool kPredicate = HV::logits_mask || HM::logits_mask;
  static constexpr float kHidden = kSoftmax ? -__builtin_inff() : 0.f;

  struct State {
    V variant{};
    M mask{};
    int batch = -1;
    WEFT_INLINE void enter(const P& p, int request) {
      if (request == batch) return;
      batch = request;
      if constexpr (HV::init) {
        variant = V{};
        variant.init(p, weft::Request{request});
      }
      if constexpr (HM::init) {
        mask = M{};
        mask.init(p, weft::Request{request});
      }
    }
  };

  WEFT_INLINE static bool visible(const P& p, State& state, const Score& c) {
    bool see = true;
    if constexpr (HV::logits_mask) see = state.variant.logits_mask(p, c);
    if constexpr (HM::logits_mask) see = see & state.mask.logits_mask(p, c);
    return see;
  }

  // Logits of one row in place of its scores. Returns their maximum, at least `start`.
  template <bool boundary>
  WEFT_INLINE static float logits(const abi::ScoreTile& tile, const abi::ScoreRow& row, const P& p, State& state,
                                  float* __restrict scores, float start) {
    Lanes top = Lanes{} - __builtin_inff();
    const int lower0 = row.lower[0], upper0 = row.upper[0], lower1 = row.lower[1], upper1 = row.upper[1];
    for (int b = 0; b < tile.num_kv_padded; b += kBlock) {
      const int left = tile.num_kv - b;
      const int n = boundary ? (left < 0 ? 0 : left > kBlock ? kBlock : left) : kBlock;
      int positions[kBlock];
      if (tile.kv_positions != nullptr)
        for (int u = 0; u < n; ++u) positions[u] = tile.kv_positions[b + u];
      else
        for (int u = 0; u < kBlock; ++u) positions[u] = tile.kv_pos_begin + b + u;
      alignas(64) float block[kBlock];
      if constexpr (boundary)
        for (int u = 0; u < kBlock; ++u) block[u] = kHidden;
      const int first = tile.kv_begin + b;
      for (int u = 0; u < n; ++u) {
        const Score c{row.batch, row.qo_idx,   first + u,  row.qo_head, row.kv_head,
                      row.q_pos, positions[u], row.qo_len, row.kv_len,  first};
        float s = scores[b + u] * p.sm_scale;
        if constexpr (HV::logits_transform) s = static_cast<float>(state.variant.logits_transform(p, c, s));
        if constexpr (boundary) {
          const int at = positions[u];
          const bool in = ((at >= lower0) & (at < upper0)) | ((at >= lower1) & (at < upper1));
          s = in ? s : kHidden;
        }
        if constexpr (kPredicate) s = visible(p, state, c) ? s : kHidden;
        block[u] = s;
      }
      for (int u = 0; u < kBlock; u += kLanes) {
        const Lanes x = *reinterpret_cast<const LanesUnaligned*>(block + u);
        *reinterpret_cast<LanesUnaligned*>(scores + b + u) = x;
        if constexpr (kSoftmax) top = x > top ? x : top;
      }
    }
    return kSoftmax ? largest(top, start) : start;
  }

  // Probabilities 2^(s * factor - base) in place; returns their sum.
  WEFT_INLINE static float probabilities(float* __restrict scores, unsigned short* __restrict halves, int n,
                                         float factor, float base) {
    Lanes sum0 = {}, sum1 = {};
    for (int b = 0; b < n; b += kBlock) {
      alignas(64) float block[kBlock];
      for (int u = 0; u < kBlock; u += 2 * kLanes) {
        float* at = scores + b + u;
        const Lanes x = exp2_lanes(*reinterpret_cast<const LanesUnaligned*>(at) * factor - base);
        const Lanes y = exp2_lanes(*reinterpret_cast<const LanesUnaligned*>(at + kLanes) * factor - base);
        sum0 += x;
        sum1 += y;
        float* to = bf16 ? block + u : at;
        *reinterpret_cast<LanesUnaligned*>(to) = x;
        *reinterpret_cast<LanesUnaligned*>(to + kLanes) = y;
      }
      if constexpr (bf16) store_bf16(halves + b, block);
    }
    return total(sum0 + sum1);
  }

  // Maximum of scaled scores that need nothing else: they stay as they are, and the second pass scales them.
  WEFT_INLINE static float maximum(const float* __restrict scores, int n, float scale, float start) {
    Lanes top0 = Lanes{} - __builtin_inff(), top1 = top0;
    for (int b = 0; b < n; b += 2 * kLanes) {
      const Lanes x = *reinterpret_cast<const LanesUnaligned*>(scores + b) * scale;
      const Lanes y = *reinterpret_cast<const LanesUnaligned*>(scores + b + kLanes) * scale;
      top0 = x > top0 ? x : top0;
      top1 = y > top1 ? y : top1;
    }
    return largest(top1 > top0 ? top1 : top0, start);
  }

  // Both passes over groups of rows: a row's second pass need not wait for its own first.
  template <bool boundary>
  WEFT_INLINE static void rows(const abi::ScoreTile& tile, const P& p) {
    constexpr bool untouched = kSoftmax && !boundary && !kPredicate && !HV::logits_transform;
    const float factor = untouched ? p.sm_scale * kLog2E : kLog2E;
    State state;
    for (int first = 0; first < tile.num_rows; first += kGroup) {
      const int count = tile.num_rows - first < kGroup ? tile.num_rows - first : kGroup;
      float m[kGroup] = {}, before[kGroup] = {}, base[kGroup], alpha[kGroup];
      for (int r = 0; r < count; ++r) {
        const abi::ScoreRow& row = tile.rows[first + r];
        float* __restrict scores = tile.scores + (first + r) * tile.ld;
        state.enter(p, row.batch);
        before[r] = tile.m[first + r];
        if constexpr (untouched)
          m[r] = maximum(scores, tile.num_kv_padded, p.sm_scale, before[r]);
        else
          m[r] = logits<boundary>(tile, row, p, state, scores, before[r]);
      }
      if constexpr (kSoftmax) {
        for (int r = 0; r < kGroup; ++r) {
          // A row that has seen nothing yet: any finite base makes its probabilities 0.
          base[r] = m[r] == -__builtin_inff() ? 0.f : m[r] * kLog2E;
          alpha[r] = weft::exp2(before[r] * kLog2E - base[r]);
        }
      }
      for (int r = 0; r < count; ++r) {
        float* __restrict scores = tile.scores + (first + r) * tile.ld;
        unsigned short* __restrict halves = bf16 ? tile.probs_bf16 + (first + r) * tile.ld_bf16 : nullptr;
        if constexpr (kSoftmax) {
          const float sum = probabilities(scores, halves, tile.num_kv_padded, factor, base[r]);
          tile.l[first + r] = tile.l[first + r] * alpha[r] + sum;
          tile.m[first + r] = m[r];
          tile.alpha[first + r] = alpha[r];
        } else {
          if constexpr (bf16)
            for (int b = 0; b < tile.num_kv_padded; b += kBlock) store_bf16(halves + b, scores + b);
          tile.alpha[first + r] = 1.f;
        }
      }
    }
  }

  static void score(const abi::ScoreTile* tile) {
    const P p = P::weft_load(tile->params);
    if (tile->boundary)
      rows<true>(*tile, p);
    else
      rows<false>(*tile, p);
  }

  // f(variant, p, x, i, row) gives element i.
  template <class F>
  WEFT_INLINE static void vectors(const abi::VectorTile* tile, F f) {
    const P p = P::weft_load(tile->params);
    State state;
    const int dim = tile->dim;
    float* __restrict old = tile->scratch;
    alignas(64) float pairs[kMaxDim], halves[kMaxDim];
    for (int r = 0; r < tile->n; ++r) {
      const abi::VectorRow& at = tile->rows[r];
      const Row row{at.batch, at.idx, at.pos, at.head};
      state.enter(p, at.batch);
      float* __restrict x = tile->x + r * tile->ld;
      for (int i = 0; i < dim; ++i) old[i] = x[i];
      // What the variant does not ask for is removed by the compiler.
      for (int i = 0; i < dim; i += 2) {
        pairs[i] = -x[i + 1];
        pairs[i + 1] = x[i];
      }
      const int half = dim / 2;
      for (int i = 0; i < half; ++i) {
        halves[i] = -x[half + i];
        halves[half + i] = x[i];
      }
      const Vec v{old, pairs, halves, dim, sum_of(old, dim), dot_of(old, old, dim)};
#pragma GCC ivdep
      for (int i = 0; i < dim; ++i) x[i] = static_cast<float>(f(state.variant, p, v, i, row));
    }
  }

  static void query(const abi::VectorTile* tile) {
    vectors(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.query_transform(p, x, i, r); });
  }
  static void key(const abi::VectorTile* tile) {
    vectors(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.key_transform(p, x, i, r); });
  }
  static void value(const abi::VectorTile* tile) {
    vectors(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.value_transform(p, x, i, r); });
  }
  static void output(const abi::VectorTile* tile) {
    vectors(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.output_transform(p, x, i, r); });
  }

  static constexpr abi::Leaf make() {
    abi::Leaf leaf{abi::kLeafVersion, kSoftmax, kPredicate, &score, nullptr, nullptr, nullptr, nullptr};
    if constexpr (HV::query_transform) leaf.query = &query;
    if constexpr (HV::key_transform) leaf.key = &key;
    if constexpr (HV::value_transform) leaf.value = &value;
    if constexpr (HV::output_transform) leaf.output = &output;
    return leaf;
  }
};

}  // namespace weft::detail
