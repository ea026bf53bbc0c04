// The leaf's loops: what turns a variant's hooks, written for one score or one element, into functions over a score
// tile and over vectors. One instance a variant: Leaf<P, V, M>::leaf. Everything here is compiled with every new
// variant, so nothing is here that no variant changes: intervals and softmax belong to the core.
//
// Scores go through in blocks of 32: the block is a local array, so no tensor of the variant can alias it and what
// does not change within a block is loaded once.
//
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft::detail {

inline constexpr int kBlock = abi::kColumnStep;
inline constexpr int kMaxDim = 576;

#if defined(WEFT_HAS_BF16_DOT)
// n numbers, a multiple of 8 that ends where two vectors may be read.
WEFT_INLINE void round_to_bf16(const float* x, int n, unsigned short* to) {
  constexpr int kStep = 2 * vec::kLanes;
  for (int i = 0; i < n; i += kStep) {
    const vec::F32 first = vec::load(x + i), second = vec::load(x + i + vec::kLanes);
    if (i + kStep <= n) {
      vec::store_bf16_pair(to + i, first, second);
    } else {
      unsigned short last[kStep];
      vec::store_bf16_pair(last, first, second);
      for (int j = i; j < n; j += 8)
        *reinterpret_cast<vec::U16x8Memory*>(to + j) = *reinterpret_cast<const vec::U16x8Memory*>(last + j - i);
    }
  }
}
#endif

// P: parameters, V: the variant, M: the mask of the spec. kDimQk, kDimVo: head dims, 0 where they are found at run
// time. Kv: the elements of keys and values, float, or unsigned short for bf16.
template <class P, class V, class M, int kDimQk = 0, int kDimVo = 0, class Kv = float>
struct Leaf {
  using HV = Hooks<V, P>;
  using HM = Hooks<M, P>;
  static constexpr bool kPredicate = HV::logits_mask || HM::logits_mask;
  static constexpr float kHidden = HV::use_softmax ? -__builtin_inff() : 0.f;

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

  static void score(const abi::ScoreTile* tile) {
    const P p = P::weft_load(tile->params);
    State state;
    for (int r = 0; r < tile->num_rows; ++r) {
      const abi::ScoreRow& row = tile->rows[r];
      state.enter(p, row.batch);
      for (int b = 0; b < tile->num_kv; b += kBlock) {
        float* scores = tile->scores + r * tile->ld + b;
        const int* positions = tile->kv_positions + b;
        const int first = tile->kv_begin + b, left = tile->num_kv - b, n = left < kBlock ? left : kBlock;
        alignas(64) float block[kBlock];
        for (int u = 0; u < kBlock; u += vec::kLanes) vec::store(block + u, vec::load(scores + u) * p.sm_scale);
        for (int u = 0; u < n; ++u) {
          const Score c{row.batch, row.qo_idx,   first + u,  row.qo_head, row.kv_head,
                        row.q_pos, positions[u], row.qo_len, row.kv_len,  {first}};
          float s = block[u];
          if constexpr (HV::logits_transform) s = static_cast<float>(state.variant.logits_transform(p, c, s));
          if constexpr (kPredicate) s = visible(p, state, c) ? s : kHidden;
          block[u] = s;
        }
        for (int u = 0; u < kBlock; u += vec::kLanes) vec::store(scores + u, vec::load(block + u));
      }
    }
  }

  WEFT_INLINE static const float* if_fp32(const float* x) { return x; }
  WEFT_INLINE static const float* if_fp32(const unsigned short*) { return nullptr; }
  WEFT_INLINE static const unsigned short* if_bf16(const float*) { return nullptr; }
  WEFT_INLINE static const unsigned short* if_bf16(const unsigned short* x) { return x; }

  // f(variant, p, x, i, row) gives element i of vectors of kDim elements, or, kDim being 0, of any number.
  template <int kDim, class Element, class F>
  WEFT_INLINE static void vectors(const abi::VectorTile* tile, F f) {
    constexpr bool kBf16 = sizeof(Element) == 2;
    const P p = P::weft_load(tile->params);
    State state;
    const int dim = kDim > 0 ? kDim : tile->dim;
    alignas(64) float pairs[kDim > 0 ? kDim : kMaxDim];
    alignas(64) float made[kBf16 ? (kDim > 0 ? (kDim + 31) / 32 * 32 : kMaxDim) : 1];
    for (int r = 0; r < tile->n; ++r) {
      const abi::VectorRow& at = tile->rows[r];
      const Row row{at.batch, at.idx, at.pos, at.head, static_cast<float>(at.lse)};
      state.enter(p, at.batch);
      const Element* __restrict x = reinterpret_cast<const Element*>(tile->from[r] + tile->offset);
      Element* to = static_cast<Element*>(tile->to) + r * tile->ld_to;
      float* __restrict y = kBf16 ? made : reinterpret_cast<float*>(to);
      const Vec v{if_fp32(x), if_bf16(x), kBf16, pairs, dim, sum_of(x, dim), dot_of(x, x, dim)};
      // What the variant does not ask for is removed by the compiler.
      for (int i = 0; i < dim; i += 2) {
        pairs[i] = -v[i + 1];
        pairs[i + 1] = v[i];
      }
      const auto element = [&](int i) __attribute__((always_inline)) {
        return static_cast<float>(f(state.variant, p, v, i, row));
      };
      if constexpr (kDim > 0) {  // rotations of halves are free of conditions, and what both need is loaded once
#pragma GCC ivdep
        for (int i = 0; i < dim / 2; ++i) {
          const float low = element(i), high = element(dim / 2 + i);
          y[i] = low;
          y[dim / 2 + i] = high;
        }
      } else {
#pragma GCC ivdep
        for (int i = 0; i < dim; ++i) y[i] = element(i);
      }
#if defined(WEFT_HAS_BF16_DOT)
      if constexpr (kBf16) round_to_bf16(made, dim, to);
#endif
    }
  }

  static void query(const abi::VectorTile* tile) {
    vectors<kDimQk, float>(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.query_transform(p, x, i, r); });
  }
  static void key(const abi::VectorTile* tile) {
    vectors<kDimQk, Kv>(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.key_transform(p, x, i, r); });
  }
  static void value(const abi::VectorTile* tile) {
    vectors<kDimVo, Kv>(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.value_transform(p, x, i, r); });
  }
  static void output(const abi::VectorTile* tile) {
    vectors<kDimVo, float>(
        tile, [](V & v, const P& p, const Vec& x, int i, const Row& r)
                  __attribute__((always_inline)) { return v.output_transform(p, x, i, r); });
  }

  static void lse(const abi::Slot* params, abi::VectorRow* rows, int n) {
    const P p = P::weft_load(params);
    State state;
    for (int r = 0; r < n; ++r) {
      abi::VectorRow& at = rows[r];
      state.enter(p, at.batch);
      at.lse = state.variant.lse_transform(p, Row{at.batch, at.idx, at.pos, at.head, static_cast<float>(at.lse)});
    }
  }

  static constexpr abi::Leaf make() {
    abi::Leaf leaf{abi::kLeafVersion, HV::use_softmax, kPredicate, nullptr, nullptr,
                   nullptr,           nullptr,         nullptr,    nullptr};
    if constexpr (HV::logits_transform || kPredicate) leaf.score = &score;
    if constexpr (HV::query_transform) leaf.query = &query;
    if constexpr (HV::key_transform) leaf.key = &key;
    if constexpr (HV::value_transform) leaf.value = &value;
    if constexpr (HV::output_transform) leaf.output = &output;
    if constexpr (HV::lse_transform) leaf.lse = &lse;
    return leaf;
  }
};

}  // namespace weft::detail
