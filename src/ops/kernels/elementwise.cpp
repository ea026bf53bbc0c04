// The loops of kernels/elementwise.h. Compiled once per ISA (weft_isa_sources): no standard header.
#include "ops/kernels/elementwise.h"

#include "ops/kernels/largest.h"
#include "tile/cpu/convert.h"
#include "tile/cpu/exp.h"
#include "tile/narrow.h"

namespace weft::ops::WEFT_ISA_NAME {
namespace {

namespace vec = weft::tile::WEFT_ISA_NAME;

constexpr int kSums = 16;  // partial sums of a reduction, the same number on every instruction set

// Sum of term(i).
template <class Term>
inline float sum_of(long long n, const Term& term) {
  float sums[kSums] = {};
  long long i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int lane = 0; lane < kSums; ++lane) sums[lane] += term(i + lane);
  for (; i < n; ++i) sums[i % kSums] += term(i);
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// The same in double, in which no square overflows or vanishes.
[[gnu::noinline]] void rms_norm_of_extremes(const float* x, const float* weight, long long dim, float eps, float* y) {
  double squares = 0;
  for (long long i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double scale = 1. / __builtin_sqrt(squares / static_cast<double>(dim) + static_cast<double>(eps));
  for (long long i = 0; i < dim; ++i)
    y[i] = static_cast<float>(static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]));
}

void rms_norm(const float* x, const float* weight, long long dim, float eps, float* y) {
  // From here on what squares lose below the least normal number is not seen.
  constexpr float kLeast = 1e-36f, kMost = 3e38f;
  const float squares = sum_of(dim, [&](long long i) { return x[i] * x[i]; });
  const float mean = squares / static_cast<float>(dim) + eps;
  if (!(mean >= kLeast && mean <= kMost)) return rms_norm_of_extremes(x, weight, dim, eps, y);
  const float scale = 1.f / __builtin_sqrtf(mean);
  for (long long i = 0; i < dim; ++i) y[i] = x[i] * scale * weight[i];
}

void add(const float* x, long long n, float* to) {
  for (long long i = 0; i < n; ++i) to[i] += x[i];
}

void scale(float* x, long long n, float factor) {
  for (long long i = 0; i < n; ++i) x[i] *= factor;
}

// y = f(a, b), element by element, a vector at a time.
template <class Function>
inline void map(const float* a, const float* b, long long n, float* y, const Function& f) {
  long long i = 0;
  for (; i + vec::kLanes <= n; i += vec::kLanes) vec::store(y + i, f(vec::load(a + i), vec::load(b + i)));
  if (i == n) return;
  const auto left = static_cast<int>(n - i);
  const auto rest = [&](const float* x) {
    return vec::load_first<vec::Fp32>(reinterpret_cast<const char*>(x + i), left);
  };
  float last[vec::kLanes];
  vec::store(last, f(rest(a), rest(b)));
  __builtin_memcpy(y + i, last, static_cast<unsigned long>(left) * sizeof(float));
}

// Gates are held to where they have vanished: beyond, the exponential would be infinite.
void silu_and_mul(const float* gate, const float* up, long long n, float* y) {
  map(gate, up, n, y, [](vec::F32 g, vec::F32 u) {
    const vec::F32 x = g < vec::broadcast(-88.f) ? vec::broadcast(-88.f) : g;
    return x / (1.f + vec::exp(-x)) * u;
  });
}

// (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)).
void gelu_tanh_and_mul(const float* gate, const float* up, long long n, float* y) {
  constexpr float kTwice = 1.5957691216f;  // 2 * sqrt(2 / pi)
  map(gate, up, n, y, [](vec::F32 g, vec::F32 u) {
    const vec::F32 x = g < vec::broadcast(-11.f) ? vec::broadcast(-11.f) : g;
    const vec::F32 z = kTwice * (x + 0.044715f * x * x * x);
    return x / (1.f + vec::exp(-z)) * u;
  });
}

// tanh(z) = e / (e + 2), e = exp(2z) - 1; z itself where its cube is not seen, so that a large cap takes nothing from a
// small x.
void soft_cap(float* x, long long n, float cap) {
  constexpr float kMost = 3e38f;  // the inverse of a subnormal cap is infinite
  const float inverse = 2.f / cap, twice = inverse < kMost ? inverse : kMost;
  map(x, x, n, x, [&](vec::F32 v, vec::F32) {
    const vec::F32 z = twice * v, e = vec::expm1(z);
    const vec::F32 magnitude = vec::as_f32(vec::as_u32(z) & 0x7fffffffu);
    return magnitude < vec::broadcast(4e-4f) ? v : cap * (e / (e + 2.f));
  });
}

void rotate_adjacent(float* x, const float* cos, const float* sin, long long pairs) {
  for (long long i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

void rotate_halves(float* x, const float* cos, const float* sin, long long pairs) {
  for (long long i = 0; i < pairs; ++i) {
    const float a = x[i], b = x[i + pairs];
    x[i] = a * cos[i] - b * sin[i];
    x[i + pairs] = b * cos[i] + a * sin[i];
  }
}

template <class Element>
void from_halves(const unsigned short* from, long long n, float* to) {
  vec::widen<Element>(reinterpret_cast<const char*>(from), n, to);
}
template <class Element>
void to_halves(const float* from, long long n, unsigned short* to) {
  vec::narrow<Element>(from, n, reinterpret_cast<char*>(to));
}
template <class Element>
void dequantise(const unsigned char* from, long long n, float factor, float* to) {
  vec::widen<Element>(reinterpret_cast<const char*>(from), n, to);
  scale(to, n, factor);
}

void extend_range(const float* x, long long n, float* low, float* high) {
  for (long long i = 0; i < n; ++i) {
    const float old_low = x[i] != x[i] ? x[i] : low[i], old_high = x[i] != x[i] ? x[i] : high[i];
    low[i] = x[i] < old_low ? x[i] : old_low;
    high[i] = x[i] > old_high ? x[i] : old_high;
  }
}

float bound_dot(const float* x, const float* low, const float* high, long long n) {
  return sum_of(n, [&](long long i) { return x[i] * (x[i] < 0.f ? low[i] : high[i]); });
}

void to_bf16_below(const float* from, long long n, unsigned short* to) {
  for (long long i = 0; i < n; ++i) to[i] = tile::bf16_towards(from[i], false);
}
void to_bf16_above(const float* from, long long n, unsigned short* to) {
  for (long long i = 0; i < n; ++i) to[i] = tile::bf16_towards(from[i], true);
}

void to_int8(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(tile::nearest_integer(from[i] * factor, 127.f));
}
void to_int4(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n / 2; ++i) {
    const int low = tile::nearest_integer(from[2 * i] * factor, 7.f),
              high = tile::nearest_integer(from[2 * i + 1] * factor, 7.f);
    to[i] = static_cast<unsigned char>((low & 15) | high << 4);
  }
}
void to_e4m3(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n; ++i) to[i] = tile::nearest_e4m3(from[i] * factor);
}
void to_e5m2(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n; ++i) to[i] = tile::nearest_e5m2(from[i] * factor);
}

}  // namespace

extern const ElementwiseTable elementwise = {
    .rms_norm = rms_norm,
    .add = add,
    .silu_and_mul = silu_and_mul,
    .gelu_tanh_and_mul = gelu_tanh_and_mul,
    .soft_cap = soft_cap,
    .scale = scale,
    .rotate_adjacent = rotate_adjacent,
    .rotate_halves = rotate_halves,
    .to_bf16 = to_halves<vec::Bf16>,
    .to_fp16 = to_halves<vec::Fp16>,
    .from_bf16 = from_halves<vec::Bf16>,
    .from_fp16 = from_halves<vec::Fp16>,
    .extend_range = extend_range,
    .to_bf16_below = to_bf16_below,
    .to_bf16_above = to_bf16_above,
    .bound_dot = bound_dot,
    .largest = largest,
    .to_int8 = to_int8,
    .to_int4 = to_int4,
    .to_e4m3 = to_e4m3,
    .to_e5m2 = to_e5m2,
    .from_int8 = dequantise<vec::Int8>,
    .from_int4 = dequantise<vec::Int4>,
    .from_e4m3 = dequantise<vec::E4m3>,
    .from_e5m2 = dequantise<vec::E5m2>,
};

}  // namespace weft::ops::WEFT_ISA_NAME
