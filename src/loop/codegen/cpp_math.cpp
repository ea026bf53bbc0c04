#include "loop/codegen/cpp_math.h"

namespace weft::loop {

const char* const kCppMath = R"(// e^x = 2^n e^r with |r| <= ln(2) / 2; within 2 ulps (float) of e^x.
// Beyond what fp32 holds it is what the bounds give, infinity and 0: without branches loops over it become vectors.
static inline float weft_exp(float x) {
  x = x > 89.f ? 89.f : x;
  x = x < -104.f ? -104.f : x;
  // A sum near 1.5 * 2^23 holds no fraction: the nearest integer, with no call on any instruction set.
  const float nearest = (x * 1.44269504f + 12582912.f) - 12582912.f, n = x == x ? nearest : 0.f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.f;
  const int whole = static_cast<int>(n), half = whole / 2;
  const unsigned low = static_cast<unsigned>(half + 127) << 23, high = static_cast<unsigned>(whole - half + 127) << 23;
  float a, b;
  __builtin_memcpy(&a, &low, 4);
  __builtin_memcpy(&b, &high, 4);
  return p * a * b;
}
static inline double weft_exp(double x) {
  x = x > 710. ? 710. : x;
  x = x < -746. ? -746. : x;
  const double nearest = (x * 1.4426950408889634 + 6755399441055744.) - 6755399441055744., n = x == x ? nearest : 0.;
  const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  double sum = 1.;
  for (int i = 15; i > 0; --i) sum = 1. + r * (1. / i) * sum;
  const int whole = static_cast<int>(n), half = whole / 2;
  const unsigned long long low = static_cast<unsigned long long>(half + 1023) << 52;
  const unsigned long long high = static_cast<unsigned long long>(whole - half + 1023) << 52;
  double a, b;
  __builtin_memcpy(&a, &low, 8);
  __builtin_memcpy(&b, &high, 8);
  return sum * a * b;
}
// x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt(2). With s = f / (2 + f), log(1 + f) = 2 s + s r for r = 2/3 s^2 +
// 2/5 s^4 + ..., and 2 s = f - s f.
static inline float weft_log(float x) {
  const bool is_small = x < 1.17549435e-38f;
  const float scaled = is_small ? x * 8388608.f : x;
  unsigned bits;
  __builtin_memcpy(&bits, &scaled, 4);
  const int exponent = static_cast<int>(bits - 0x3f3504f3u) >> 23;
  bits -= static_cast<unsigned>(exponent) << 23;
  float m;
  __builtin_memcpy(&m, &bits, 4);
  const float k = static_cast<float>(exponent - (is_small ? 23 : 0)), f = m - 1.f, s = f / (2.f + f), z = s * s;
  const float r = z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * (0.222222222f + z * 0.181818182f))));
  float log = k * 0.693359375f + (f - (s * (f - r) - k * -2.12194440e-4f));
  log = x == 0.f ? -__builtin_inff() : log;
  log = x < 0.f ? __builtin_nanf("") : log;
  return x < __builtin_inff() ? log : x;
}
static inline double weft_log(double x) {
  const bool is_small = x < 2.2250738585072014e-308;
  const double scaled = is_small ? x * 4503599627370496. : x;
  unsigned long long bits;
  __builtin_memcpy(&bits, &scaled, 8);
  const int exponent = static_cast<int>(static_cast<long long>(bits - 0x3fe6a09e667f3bcdull) >> 52);
  bits -= static_cast<unsigned long long>(exponent) << 52;
  double m;
  __builtin_memcpy(&m, &bits, 8);
  const double k = exponent - (is_small ? 52 : 0), f = m - 1., s = f / (2. + f), z = s * s;
  double r = 0.;
  for (int i = 12; i > 0; --i) r = z * (2. / (2 * i + 1) + r);
  double log = k * 6.93145751953125e-1 + (f - (s * (f - r) - k * 1.42860682030941723212e-6));
  log = x == 0. ? -__builtin_inf() : log;
  log = x < 0. ? __builtin_nan("") : log;
  return x < __builtin_inf() ? log : x;
}
// (e^2x - 1) / (e^2x + 1); near 0 e^2x - 1 as a series, or nothing would be left of it.
static inline float weft_tanh(float x) {
  float t = __builtin_fabsf(x);
  t = t > 20.f ? 20.f : t;
  const float u = 2.f * t;
  float p = 1.f;
  for (int i = 12; i > 1; --i) p = 1.f + u * (1.f / i) * p;
  const float above = u * p, near = above / (above + 2.f), far = 1.f - 2.f / (weft_exp(u) + 1.f);
  return __builtin_copysignf(t < 0.55f ? near : far, x);
}
static inline double weft_tanh(double x) {
  double t = __builtin_fabs(x);
  t = t > 20. ? 20. : t;
  const double u = 2. * t;
  double p = 1.;
  for (int i = 20; i > 1; --i) p = 1. + u * (1. / i) * p;
  const double above = u * p, near = above / (above + 2.), far = 1. - 2. / (weft_exp(u) + 1.);
  return __builtin_copysign(t < 0.55 ? near : far, x);
}
// From e^-|x| alone: e^-x may be infinite where the result is not 0.
static inline float weft_sigmoid(float x) {
  const float e = weft_exp(-__builtin_fabsf(x));
  return (x < 0.f ? e : 1.f) / (1.f + e);
}
static inline double weft_sigmoid(double x) {
  const double e = weft_exp(-__builtin_fabs(x));
  return (x < 0. ? e : 1.) / (1. + e);
}
// As the C standard has it where x or y is 0, 1, infinite or NaN.
static inline double weft_pow(double x, double y) {
  const double a = __builtin_fabs(x), t = __builtin_fabs(y), half = t * 0.5;
  double result = weft_exp(y * weft_log(a));
  // A sum beyond 2^52 holds no fraction.
  const bool is_whole = t >= 4503599627370496. || (t + 4503599627370496.) - 4503599627370496. == t;
  const bool is_odd =
      is_whole && t < 9007199254740992. && (half + 4503599627370496.) - 4503599627370496. != half;
  result = y == 0. || x == 1. || (a == 1. && t == __builtin_inf()) ? 1. : result;
  result = is_odd ? __builtin_copysign(result, x) : result;
  return x < 0. && a < __builtin_inf() && !is_whole ? __builtin_nan("") : result;
}
static inline float weft_pow(float x, float y) {
  return static_cast<float>(weft_pow(static_cast<double>(x), static_cast<double>(y)));
}
)";

}  // namespace weft::loop
