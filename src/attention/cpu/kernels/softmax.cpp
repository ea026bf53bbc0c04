// Scores become probabilities: what the rows' intervals do not show is masked, then the online softmax.
#include "attention/cpu/kernels/dense.h"
#include "tile/cpu/exp.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr int kGroup = 8;  // rows that take both passes together: the second need not wait for a row's own first

// Where two vectors of a row's results go, at column j.
struct InPlace {
  float* scores;
  static WEFT_INLINE F32 exp2_of(F32 x) { return exp2(x); }
  WEFT_INLINE void put(int j, F32 a, F32 b) const {
    store(scores + j, a);
    store(scores + j + kLanes, b);
  }
  static InPlace of(const SoftmaxTile& tile, int row) { return {tile.scores + row * tile.ld}; }
};
#if defined(WEFT_HAS_BF16_DOT)
struct Rounded {
  unsigned short* probs;
  static WEFT_INLINE F32 exp2_of(F32 x) { return exp2_for_bf16(x); }
  WEFT_INLINE void put(int j, F32 a, F32 b) const { store_bf16_pair(probs + j, a, b); }
  static Rounded of(const SoftmaxTile& tile, int row) { return {tile.probs_bf16 + row * tile.ld}; }
};
#endif

// x as a number of its own: a product in it is not contracted with a sum that it goes into.
template <class T>
WEFT_INLINE T rounded(T x) {
  asm("" : "+m"(x));
  return x;
}

// How a tile is scaled: its scores at once, or where they are read. A boundary tile is scaled where the others are, so
// that a row has the same bits whatever the rows beside it see; only a scale that would make a number of what hides a
// key is applied first, and makes all scores alike.
struct Scales {
  float first, later, hidden;
  explicit Scales(const SoftmaxTile& tile) : first(1), later(tile.scale), hidden(0) {
    if (tile.boundary && !(__builtin_fabsf(tile.scale) >= 0x1p-126f)) {
      first = tile.scale;
      later = 1;
    }
    if (tile.use_softmax) hidden = later < 0 ? __builtin_inff() : -__builtin_inff();
  }
};

// Scales a row's scores and masks the keys that it does not see.
void scale_and_mask(const SoftmaxTile& tile, const abi::ScoreRow& row, float* scores, F32 scale, F32 hidden) {
  const auto from = [&](int i) { return broadcast(static_cast<unsigned>(row.lower[i])); };
  const auto width = [&](int i) {
    return broadcast(static_cast<unsigned>(row.upper[i] > row.lower[i] ? row.upper[i] - row.lower[i] : 0));
  };
  const U32 from0 = from(0), from1 = from(1), width0 = width(0), width1 = width(1);
  for (int j = 0; j < tile.num_kv_padded; j += kLanes) {
    const U32 at = load_u32(tile.kv_positions + j);  // below `from` it wraps and is large
    const F32 x = load(scores + j) * scale;
    const F32 second = at - from1 < width1 ? x : hidden;
    store(scores + j, at - from0 < width0 ? x : second);
  }
}

// Of scores times scale. NaN left out: it reaches the result through the exponential.
float maximum(const float* scores, int n, float scale, float start) {
  F32 top0 = broadcast(-__builtin_inff()), top1 = top0;
  const bool ascending = scale >= 0x1p-126f && scale < __builtin_inff();  // so do rounded products with it
  if (ascending)
    for (int j = 0; j < n; j += 2 * kLanes) {
      top0 = max(load(scores + j), top0);
      top1 = max(load(scores + j + kLanes), top1);
    }
  else
    for (int j = 0; j < n; j += 2 * kLanes) {
      top0 = max(load(scores + j) * scale, top0);
      top1 = max(load(scores + j + kLanes) * scale, top1);
    }
  const float top = max_lanes(max(top0, top1)) * (ascending ? scale : 1.f);
  return top > start ? top : start;
}

// 2^(s * factor - base); returns the sum.
template <class To>
float exponentials(const float* scores, const To& to, int n, F32 factor, F32 base) {
  F32 sum0 = {}, sum1 = {};
  for (int j = 0; j < n; j += 2 * kLanes) {
    const F32 p0 = To::exp2_of(load(scores + j) * factor - base);
    const F32 p1 = To::exp2_of(load(scores + j + kLanes) * factor - base);
    sum0 += p0;
    sum1 += p1;
    to.put(j, p0, p1);
  }
  return sum_lanes(sum0 + sum1);
}

// 2^((s * scale - m) * log2(e)), the product rounded as the maximum m was, which is one of them: none lies above it.
template <class To>
[[gnu::noinline, gnu::cold]] float far_exponentials(const float* scores, const To& to, int n, F32 scale, F32 m) {
  F32 sum = {};
  for (int j = 0; j < n; j += 2 * kLanes) {
    const F32 p0 = exp2((rounded(load(scores + j) * scale) - m) * kLog2E);
    const F32 p1 = exp2((rounded(load(scores + j + kLanes) * scale) - m) * kLog2E);
    sum += p0 + p1;
    to.put(j, p0, p1);
  }
  return sum_lanes(sum);
}

template <class To>
void softmax_rows(const SoftmaxTile& tile) {
  const int n = tile.num_kv_padded;
  const Scales scales(tile);
  const F32 scale = broadcast(scales.later);
  const bool has_factor =
      __builtin_fabsf(scales.later * kLog2E) < __builtin_inff();  // that scores can be multiplied by
  for (int first = 0; first < tile.num_rows; first += kGroup) {
    const int end = min_of(first + kGroup, tile.num_rows);
    const auto scores = [&](int row) { return tile.scores + row * tile.ld; };
    if (tile.boundary)
      for (int row = first; row < end; ++row)
        scale_and_mask(tile, tile.rows[row], scores(row), broadcast(scales.first), broadcast(scales.hidden));
    if (!tile.use_softmax) {
      for (int row = first; row < end; ++row) {
        const To to = To::of(tile, row);
        for (int j = 0; j < n; j += 2 * kLanes)
          to.put(j, load(scores(row) + j) * scale, load(scores(row) + j + kLanes) * scale);
        tile.alpha[row] = 1;
      }
      continue;
    }
    float base[kGroup];
    for (int row = first; row < end; ++row) {
      const float before = tile.m[row], m = maximum(scores(row), n, scales.later, before);
      tile.m[row] = m;
      if (is_far(m) || is_far(before)) {
        base[row - first] = rounded(m * kLog2E);
        tile.alpha[row] = exp2(broadcast(before - m) * kLog2E)[0];
        continue;
      }
      // A row that has seen nothing yet: any finite base makes its probabilities 0.
      base[row - first] = m == -__builtin_inff() ? 0.f : rounded(m * kLog2E);
      // The base before, as it was rounded: what was summed relative to it moves on by the very difference.
      tile.alpha[row] = exp2(broadcast(rounded(before * kLog2E) - base[row - first]))[0];
    }
    for (int row = first; row < end; ++row) {
      const To to = To::of(tile, row);
      const float m = tile.m[row];
      const float sum = is_far(m) || !has_factor
                            ? far_exponentials(scores(row), to, n, scale, broadcast(m == -__builtin_inff() ? 0.f : m))
                            : exponentials(scores(row), to, n, scale * kLog2E, broadcast(base[row - first]));
      tile.l[row] = tile.l[row] * tile.alpha[row] + sum;
    }
  }
}

}  // namespace

void softmax(const SoftmaxTile& tile) {
#if defined(WEFT_HAS_BF16_DOT)
  if (tile.probs_bf16 != nullptr) {
    softmax_rows<Rounded>(tile);
    return;
  }
#endif
  softmax_rows<InPlace>(tile);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
