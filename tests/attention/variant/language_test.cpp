// The language of variants belongs to no target: its headers are plain C++20, and a target that is nothing but the
// contract of tile/variant/language.h compiles a variant with every hook, by another compiler than the library's own.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "attention/variant/text.h"

namespace weft {
namespace {

// What language.h asks of a target before it and after it, and no more. Its math is declared, or what float_math.h asks
// for.
constexpr const char* kBefore = R"(
#define WEFT_INLINE inline
namespace weft {
using real = float;
namespace detail {
struct KeyRun {};
bool bit_of(const unsigned char* bytes, long long row_start, int key, KeyRun run);
}
}
)";
constexpr const char* kMath = R"(
namespace weft {
real infinity();
real exp(real x);
real exp2(real x);
real log(real x);
real tanh(real x);
real fast_tanh(real x);
real sigmoid(real x);
real sin(real x);
real cos(real x);
real sqrt(real x);
real rsqrt(real x);
}
)";
constexpr const char* kUnderFloatMath = R"(
namespace weft {
real infinity();
real sqrt(real x);
namespace detail {
real not_a_number();
real from_bits(unsigned x);
unsigned to_bits(real x);
}
}
)";
constexpr const char* kAfter = R"(
namespace weft {
struct Vec {
  real operator[](int i) const;
  int size() const;
  real partner(int i) const;
  real total() const;
  real squares() const;
  real product(TensorRow<float> row) const;
};
}
)";

Variant every_hook() {
  return {.name = "Every",
          .text = R"(struct Every {
  real weight;
  void init(P p, Request r) { weight = p.table(r.batch, 0) + p.gain; }
  real query_transform(P p, Vec x, int i, Row r) {
    return x[i] * weft::rsqrt(weft::dot(x, x) / real(x.size())) + p.table(r.pos, i);
  }
  real key_transform(P p, Vec x, int i, Row r) {
    return x[i] * weft::cos(p.gain * real(r.pos)) + weft::pair(x, i) * weft::sin(p.gain);
  }
  real value_transform(P p, Vec x, int i, Row) {
    return weft::dot(x, p.table.row(i)) + weft::pair_halves(x, i) + weft::pair_halves(x, i, 4);
  }
  real logits_transform(P p, Score c, real s) {
    if (weft::div_const(c.kv_pos, p.width) == weft::mod_const(c.q_pos, p.width))
      return weft::tanh(s) * weight + weft::fast_tanh(s);
    return weft::select(s > p.gain, weft::exp(s),
                        weft::clamp(weft::abs(s), real(0), weft::max(s, weft::min(s, p.gain))));
  }
  static bool leaves_logits(P p) { return p.gain == weft::infinity(); }
  bool logits_mask(P p, Score c) { return weft::mask_bit(p.bits, p.start(c.batch), 1ll * c.qo_idx * c.kv_len, c); }
  real output_transform(P, Vec x, int i, Row r) { return x[i] * weft::sigmoid(r.lse) - weft::sum(x); }
  real lse_transform(P, Row r) {
    return r.lse == -weft::infinity() ? weft::exp2(r.lse) : weft::log(r.lse) + weft::sqrt(r.lse);
  }
};
)",
          .scalars = {{.name = "gain"}, {"width", ScalarKind::integer}},
          .tensors = {{.name = "table", .rank = 2}, {"bits", DType::uint8, 1}, {"start", DType::int64, 1}}};
}

TEST(VariantLanguage, NamesNoCompilersOwnExtension) {
  for (const char* header : {text::k_variant_language, text::k_variant_vectors, text::k_variant_hooks,
                             text::k_variant_float_math, text::k_variant_float_exp, text::k_variant_float_tanh})
    for (const char* word : {"__", "vector_size", "aligned", "asm", "#include"})
      EXPECT_EQ(std::string(header).find(word), std::string::npos) << word;
}

// clang, asked for nothing but the standard, and for no machine.
TEST(VariantLanguage, PassesAnotherFrontEndWithEveryHook) {
  const LeafParts parts = leaf_parts({.variant = every_hook()});
  const std::string float_math = std::string(kUnderFloatMath) + text::k_variant_float_math + text::k_variant_float_exp +
                                 text::k_variant_float_tanh;
  const auto compile = [](const std::string& text) {
    std::FILE* compiler = popen("clang++ -x c++ -std=c++20 -pedantic-errors -Wall -Werror -fsyntax-only - 2>&1", "w");
    if (compiler == nullptr) return -1;
    std::fwrite(text.data(), 1, text.size(), compiler);
    return pclose(compiler);
  };
  for (const std::string& math : {std::string(kMath), float_math}) {
    std::string source = std::string(text::k_abi_leaf) + kBefore + text::k_variant_language + math + kAfter +
                         text::k_variant_vectors + text::k_variant_hooks + leaf_body(parts, "own");
    for (const char* hook : {"init", "query_transform", "key_transform", "value_transform", "logits_transform",
                             "logits_mask", "output_transform", "lse_transform", "leaves_logits"})
      source += std::string("static_assert(weft::detail::Hooks<own::variant::Every, own::P>::") + hook + ");\n";
    EXPECT_EQ(compile(source), 0);
    EXPECT_NE(compile(source + "static_assert(weft::detail::Hooks<own::variant::Every, own::P>::no_hook);"), 0);
  }
}

}  // namespace
}  // namespace weft
