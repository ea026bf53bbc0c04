#include "loop/codegen/cpp_math.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace weft::loop {
namespace {

// Series that are cut where the type's precision ends, each in its own way.
constexpr const char* kSeries = R"(static inline float weft_exp_near_0(float r) {
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.f;
}
static inline double weft_exp_near_0(double r) {
  double sum = 1.;
  for (int i = 15; i > 0; --i) sum = 1. + r * (1. / i) * sum;
  return sum;
}
// 2/3 z + 2/5 z^2 + ...
static inline float weft_log_series(float z) {
  return z * (0.666666667f + z * (0.4f + z * (0.285714286f + z * (0.222222222f + z * 0.181818182f))));
}
static inline double weft_log_series(double z) {
  double r = 0.;
  for (int i = 12; i > 0; --i) r = z * (2. / (2 * i + 1) + r);
  return r;
}
)";

// Of float and of double. $f: what literals and builtins of the type end with; the others are words of kReals.
constexpr const char* kFunctions =
    R"(// e^x = 2^n e^r with |r| <= ln(2) / 2; within 2 ulps of e^x.
// Beyond what the type holds it is what the bounds give, infinity and 0: without branches loops over it become vectors.
static inline $real weft_exp($real x) {
  x = x > $exp_most ? $exp_most : x;
  x = x < $exp_least ? $exp_least : x;
  // A sum near $whole holds no fraction: the nearest integer, with no call on any instruction set.
  const $real nearest = (x * $log2_e + $whole) - $whole, n = x == x ? nearest : 0.$f;
  const $real r = (x - n * $ln2_high) - n * $ln2_low;
  const int power = static_cast<int>(n), half = power / 2;
  const $bits low = static_cast<$bits>(half + $bias) << $mantissa;
  const $bits high = static_cast<$bits>(power - half + $bias) << $mantissa;
  $real a, b;
  __builtin_memcpy(&a, &low, sizeof a);
  __builtin_memcpy(&b, &high, sizeof b);
  return weft_exp_near_0(r) * a * b;
}
// x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt(2). With s = f / (2 + f), log(1 + f) = 2 s + s r for r = 2/3 s^2 +
// 2/5 s^4 + ..., and 2 s = f - s f.
static inline $real weft_log($real x) {
  const bool is_small = x < $least_normal;
  const $real scaled = is_small ? x * $ulps_of_1 : x;
  $bits bits;
  __builtin_memcpy(&bits, &scaled, sizeof bits);
  const int exponent = static_cast<int>(static_cast<$signed_bits>(bits - $sqrt_half) >> $mantissa);
  bits -= static_cast<$bits>(exponent) << $mantissa;
  $real m;
  __builtin_memcpy(&m, &bits, sizeof m);
  const $real k = static_cast<$real>(exponent - (is_small ? $mantissa : 0));
  const $real f = m - 1.$f, s = f / (2.$f + f), r = weft_log_series(s * s);
  $real log = k * $ln2_high + (f - (s * (f - r) - k * $ln2_low));
  log = x == 0.$f ? -__builtin_inf$f() : log;
  log = x < 0.$f ? __builtin_nan$f("") : log;
  return x < __builtin_inf$f() ? log : x;
}
// (e^2x - 1) / (e^2x + 1); near 0 e^2x - 1 as a series, or nothing would be left of it.
static inline $real weft_tanh($real x) {
  $real t = __builtin_fabs$f(x);
  t = t > 20.$f ? 20.$f : t;
  const $real u = 2.$f * t;
  $real p = 1.$f;
  for (int i = $tanh_terms; i > 1; --i) p = 1.$f + u * (1.$f / i) * p;
  const $real above = u * p, near = above / (above + 2.$f), far = 1.$f - 2.$f / (weft_exp(u) + 1.$f);
  return __builtin_copysign$f(t < 0.55$f ? near : far, x);
}
// From e^-|x| alone: e^-x may be infinite where the result is not 0.
static inline $real weft_sigmoid($real x) {
  const $real e = weft_exp(-__builtin_fabs$f(x));
  return (x < 0.$f ? e : 1.$f) / (1.$f + e);
}
)";

using Words = std::map<std::string, std::string>;
// `whole` is 1.5 * 2^mantissa; `sqrt_half` are the bits of sqrt(1/2); `ulps_of_1` is 2^mantissa.
const Words kReals[] = {{{"real", "float"},
                         {"f", "f"},
                         {"bits", "unsigned"},
                         {"signed_bits", "int"},
                         {"mantissa", "23"},
                         {"bias", "127"},
                         {"exp_most", "89.f"},
                         {"exp_least", "-104.f"},
                         {"whole", "12582912.f"},
                         {"log2_e", "1.44269504f"},
                         {"ln2_high", "0.693359375f"},
                         {"ln2_low", "-2.12194440e-4f"},
                         {"least_normal", "1.17549435e-38f"},
                         {"ulps_of_1", "8388608.f"},
                         {"sqrt_half", "0x3f3504f3u"},
                         {"tanh_terms", "12"}},
                        {{"real", "double"},
                         {"f", ""},
                         {"bits", "unsigned long long"},
                         {"signed_bits", "long long"},
                         {"mantissa", "52"},
                         {"bias", "1023"},
                         {"exp_most", "710."},
                         {"exp_least", "-746."},
                         {"whole", "6755399441055744."},
                         {"log2_e", "1.4426950408889634"},
                         {"ln2_high", "6.93145751953125e-1"},
                         {"ln2_low", "1.42860682030941723212e-6"},
                         {"least_normal", "2.2250738585072014e-308"},
                         {"ulps_of_1", "4503599627370496."},
                         {"sqrt_half", "0x3fe6a09e667f3bcdull"},
                         {"tanh_terms", "20"}}};

constexpr const char* kPow = R"(// As the C standard has it where x or y is 0, 1, infinite or NaN.
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

// The text with what each "$word" stands for.
std::string with_words(std::string_view text, const Words& words) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t dollar = std::min(text.find('$', at), text.size());
    result += text.substr(at, dollar - at);
    if (dollar == text.size()) break;
    size_t end = dollar + 1;
    const auto is_of_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    while (end < text.size() && is_of_word(text[end])) ++end;
    result += words.at(std::string(text.substr(dollar + 1, end - dollar - 1)));
    at = end;
  }
  return result;
}

}  // namespace

const std::string& cpp_math() {
  static const std::string text =
      kSeries + with_words(kFunctions, kReals[0]) + with_words(kFunctions, kReals[1]) + kPow;
  return text;
}

}  // namespace weft::loop
