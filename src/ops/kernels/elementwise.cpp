// The loops of kernels/elementwise.h. Compiled once per ISA (weft_isa_sources): no standard header.
#include "ops/kernels/elementwise.h"

#include "ops/kernels/largest.h"
#include "tile/cpu/convert.h"

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

void rms_norm(const float* x, const float* weight, long long dim, float eps, float* y) {
  const float squares = sum_of(dim, [&](long long i) { return x[i] * x[i]; });
  const float scale = 1.f / __builtin_sqrtf(squares / static_cast<float>(dim) + eps);
  for (long long i = 0; i < dim; ++i) y[i] = x[i] * scale * weight[i];
}

void add(const float* x, long long n, float* to) {
  for (long long i = 0; i < n; ++i) to[i] += x[i];
}

void scale(float* x, long long n, float factor) {
  for (long long i = 0; i < n; ++i) x[i] *= factor;
}

// exp within 2 ulp: 2^n times a polynomial on [-ln2 / 2, ln2 / 2]. Arguments are held to [-87, 88]: gates and caps do
// not need the rest.
inline float exp_held(float x) {
  x = x < -87.f ? -87.f : x > 88.f ? 88.f : x;
  constexpr float kMagic = 12582912.f;
  const float shifted = x * 1.44269504f + kMagic, n = shifted - kMagic;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.f / 5040.f;
  p = p * r + 1.f / 720.f;
  p = p * r + 1.f / 120.f;
  p = p * r + 1.f / 24.f;
  p = p * r + 1.f / 6.f;
  p = p * r + 0.5f;
  p = p * r + 1.f;
  p = p * r + 1.f;
  const int power = (__builtin_bit_cast(int, shifted) - __builtin_bit_cast(int, kMagic) + 127) << 23;
  return p * __builtin_bit_cast(float, power);
}

void silu_and_mul(const float* gate, const float* up, long long n, float* y) {
  for (long long i = 0; i < n; ++i) y[i] = gate[i] / (1.f + exp_held(-gate[i])) * up[i];
}

// (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z)).
void gelu_tanh_and_mul(const float* gate, const float* up, long long n, float* y) {
  constexpr float kTwice = 1.5957691216f;  // 2 * sqrt(2 / pi)
  for (long long i = 0; i < n; ++i) {
    const float x = gate[i], z = kTwice * (x + 0.044715f * x * x * x);
    y[i] = x / (1.f + exp_held(-z)) * up[i];
  }
}

void soft_cap(float* x, long long n, float cap) {
  const float twice = 2.f / cap;
  for (long long i = 0; i < n; ++i) x[i] = cap - 2.f * cap / (1.f + exp_held(twice * x[i]));
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
void from_bytes(const unsigned char* from, long long n, float factor, float* to) {
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
  return sum_of(n, [&](long long i) {
    const float a = x[i] * low[i], b = x[i] * high[i];
    return a > b ? a : b;
  });
}

// The nearest integer to x within [low, high]; 0 for NaN.
inline int nearest(float x, float low, float high) {
  constexpr float kMagic = 12582912.f;
  x = x == x ? x : 0.f;
  x = x < low ? low : x > high ? high : x;
  return __builtin_bit_cast(int, x + kMagic) - __builtin_bit_cast(int, kMagic);
}
void to_int8(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n; ++i) to[i] = static_cast<unsigned char>(nearest(from[i] * factor, -127.f, 127.f));
}
void to_int4(const float* from, long long n, float factor, unsigned char* to) {
  for (long long i = 0; i < n / 2; ++i) {
    const int low = nearest(from[2 * i] * factor, -7.f, 7.f), high = nearest(from[2 * i + 1] * factor, -7.f, 7.f);
    to[i] = static_cast<unsigned char>((low & 15) | high << 4);
  }
}

// fp8 of `mantissa` bits below the leading one, its exponents biased by `bias`, up to the code `most`.
template <int mantissa, int bias, unsigned most, unsigned nan>
inline void to_fp8(const float* from, long long n, float factor, unsigned char* to) {
  constexpr int kShift = 23 - mantissa;
  constexpr unsigned kRebias = static_cast<unsigned>(127 - bias) << 23, kLeastNormal = kRebias + (1u << 23);
  // Adding it rounds to multiples of the smallest number.
  constexpr unsigned kSmall = static_cast<unsigned>(127 + 23 - (bias - 1 + mantissa)) << 23;
  for (long long i = 0; i < n; ++i) {
    const unsigned bits = __builtin_bit_cast(unsigned, from[i] * factor), magnitude = bits & 0x7fffffffu;
    const unsigned normal = (magnitude - kRebias + (1u << (kShift - 1)) - 1u + (magnitude >> kShift & 1u)) >> kShift;
    const unsigned small =
        __builtin_bit_cast(unsigned, __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kSmall)) - kSmall;
    const unsigned number = magnitude < kLeastNormal ? small : normal;
    const unsigned finite = magnitude >= 0x47800000u || number > most ? most : number;  // from 2^16 on codes wrap
    to[i] = static_cast<unsigned char>((magnitude > 0x7f800000u ? nan : finite) | (bits >> 24 & 0x80u));
  }
}
void to_e4m3(const float* from, long long n, float factor, unsigned char* to) {
  to_fp8<3, 7, 0x7e, 0x7f>(from, n, factor, to);
}
void to_e5m2(const float* from, long long n, float factor, unsigned char* to) {
  to_fp8<2, 15, 0x7b, 0x7e>(from, n, factor, to);
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
    .bound_dot = bound_dot,
    .largest = largest,
    .to_int8 = to_int8,
    .to_int4 = to_int4,
    .to_e4m3 = to_e4m3,
    .to_e5m2 = to_e5m2,
    .from_int8 = from_bytes<vec::Int8>,
    .from_int4 = from_bytes<vec::Int4>,
    .from_e4m3 = from_bytes<vec::E4m3>,
    .from_e5m2 = from_bytes<vec::E5m2>,
};

}  // namespace weft::ops::WEFT_ISA_NAME
