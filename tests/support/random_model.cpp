#include "tests/support/random_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace weft::testing {
namespace {

// SplitMix64, and sums of four uniform numbers in place of normal ones: only exact operations, so that every machine
// and library gives the same numbers.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  double uniform() { return static_cast<double>(next() >> 40) / (1 << 24); }
  // Mean 0, variance 1.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0) * 1.7320508075688772; }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

// Of numbers within fp16's range.
uint16_t to_half(float value) {
  if (value == 0.f) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(static_cast<double>(value)), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));     // 1024 to 2048
  if (exponent < -13) {                                                                 // a multiple of the smallest
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(std::abs(static_cast<double>(value)), 24)));
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | steps);
  }
  if (exponent > 16) throw std::logic_error("random model: scale outside fp16");
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (((exponent + 14) << 10) + mantissa - 1024));
}
float from_half(uint16_t bits) {
  if ((bits & 0x7fff) == 0) return 0.f;
  const int exponent = bits >> 10 & 31;
  const double value = exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return static_cast<float>(bits >> 15 ? -value : value);
}

using Block = std::array<float, 32>;
constexpr size_t kSuperBlock = 256;

uint8_t level(float value, float scale, int most) {
  const float steps = scale == 0.f ? 0.f : value / scale;
  return static_cast<uint8_t>(std::clamp(static_cast<int>(std::lround(steps)), 0, most));
}

void put_nibbles(std::string& out, const Block& x, float scale, float least) {
  for (size_t i = 0; i < 16; ++i)
    put(out, static_cast<uint8_t>(level(x[i] - least, scale, 15) | level(x[i + 16] - least, scale, 15) << 4));
}

void put_q8_0(std::string& out, const Block& x) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  const uint16_t scale = to_half(most / 127.f);
  put(out, scale);
  for (const float v : x)
    put(out, static_cast<int8_t>(std::clamp(static_cast<int>(std::lround(v / from_half(scale))), -127, 127)));
}
void put_q4_0(std::string& out, const Block& x) {
  const float most = *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const uint16_t scale = to_half(most / -8.f);
  put(out, scale);
  put_nibbles(out, x, from_half(scale), -8.f * from_half(scale));
}
void put_q4_1(std::string& out, const Block& x) {
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const uint16_t scale = to_half((*most - *least) / 15.f), offset = to_half(*least);
  put(out, scale);
  put(out, offset);
  put_nibbles(out, x, from_half(scale), from_half(offset));
}
void put_q5_0(std::string& out, const Block& x) {
  const float most = *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const uint16_t scale = to_half(most / -16.f);
  put(out, scale);
  std::array<uint8_t, 32> levels;
  uint32_t fifth = 0;
  for (size_t i = 0; i < 32; ++i) {
    levels[i] = level(x[i] + 16.f * from_half(scale), from_half(scale), 31);
    fifth |= uint32_t{levels[i]} >> 4 << i;
  }
  put(out, fifth);
  for (size_t i = 0; i < 16; ++i) put(out, static_cast<uint8_t>((levels[i] & 15) | (levels[i + 16] & 15) << 4));
}

// 8 blocks of 32, each with a scale and a minimum of 6 bits.
void put_q4_k(std::string& out, const float* x) {
  std::array<float, 8> scales, leasts;
  for (size_t j = 0; j < 8; ++j) {
    const auto [least, most] = std::minmax_element(x + 32 * j, x + 32 * j + 32);
    leasts[j] = std::max(0.f, -*least);
    scales[j] = (*most + leasts[j]) / 15.f;
  }
  const uint16_t d = to_half(*std::max_element(scales.begin(), scales.end()) / 63.f);
  const uint16_t m = to_half(*std::max_element(leasts.begin(), leasts.end()) / 63.f);
  put(out, d);
  put(out, m);
  std::array<uint8_t, 8> s, l;
  for (size_t j = 0; j < 8; ++j) {
    s[j] = level(scales[j], from_half(d), 63);
    l[j] = level(leasts[j], from_half(m), 63);
  }
  for (size_t j = 0; j < 4; ++j) put(out, static_cast<uint8_t>(s[j] | s[j + 4] >> 4 << 6));
  for (size_t j = 0; j < 4; ++j) put(out, static_cast<uint8_t>(l[j] | l[j + 4] >> 4 << 6));
  for (size_t j = 4; j < 8; ++j) put(out, static_cast<uint8_t>((s[j] & 15) | (l[j] & 15) << 4));
  const auto nibble = [&](size_t j, size_t i) {
    return level(x[32 * j + i] + from_half(m) * l[j], from_half(d) * s[j], 15);
  };
  for (size_t j = 0; j < 8; j += 2)
    for (size_t i = 0; i < 32; ++i) put(out, static_cast<uint8_t>(nibble(j, i) | nibble(j + 1, i) << 4));
}

// 16 blocks of 16, each with a signed scale of 8 bits.
void put_q6_k(std::string& out, const float* x) {
  std::array<float, 16> scales;
  for (size_t j = 0; j < 16; ++j) {
    const float most =
        *std::max_element(x + 16 * j, x + 16 * j + 16, [](float a, float b) { return std::abs(a) < std::abs(b); });
    scales[j] = most / -32.f;
  }
  const float widest =
      *std::max_element(scales.begin(), scales.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  const uint16_t d = to_half(widest / -127.f);
  std::array<int, 16> s;
  std::array<uint8_t, kSuperBlock> levels;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    if (i % 16 == 0) s[i / 16] = std::clamp(static_cast<int>(std::lround(scales[i / 16] / from_half(d))), -127, 127);
    const float step = from_half(d) * static_cast<float>(s[i / 16]);
    levels[i] = level(x[i] + 32.f * step, step, 63);
  }
  for (size_t part = 0; part < 256; part += 128)
    for (size_t i = 0; i < 64; ++i)
      put(out, static_cast<uint8_t>((levels[part + i] & 15) | (levels[part + 64 + i] & 15) << 4));
  for (size_t part = 0; part < 256; part += 128)
    for (size_t i = 0; i < 32; ++i) {
      int bits = 0;
      for (size_t quarter = 0; quarter < 4; ++quarter) bits |= levels[part + 32 * quarter + i] >> 4 << 2 * quarter;
      put(out, static_cast<uint8_t>(bits));
    }
  for (const int scale : s) put(out, static_cast<int8_t>(scale));
  put(out, d);
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Put>
std::string put_each(const std::vector<float>& values, size_t step, const Put& put_part) {
  if (values.size() % step != 0) throw std::logic_error("random model: a width that the type's blocks do not divide");
  std::string out;
  for (size_t at = 0; at < values.size(); at += step) put_part(out, values.data() + at);
  return out;
}

std::string pack(const std::vector<float>& values, uint32_t type) {
  const auto blocks = [&](void (*put_block)(std::string&, const Block&)) {
    return put_each(values, 32, [&](std::string& out, const float* x) {
      Block block;
      std::copy_n(x, block.size(), block.begin());
      put_block(out, block);
    });
  };
  switch (type) {
    case GgufWriter::kF32: return put_each(values, 1, [](std::string& out, const float* x) { put(out, *x); });
    case GgufWriter::kF16: return put_each(values, 1, [](std::string& out, const float* x) { put(out, to_half(*x)); });
    case GgufWriter::kBF16: return put_each(values, 1, [](std::string& out, const float* x) { put(out, to_bf16(*x)); });
    case GgufWriter::kQ8_0: return blocks(put_q8_0);
    case GgufWriter::kQ4_0: return blocks(put_q4_0);
    case GgufWriter::kQ4_1: return blocks(put_q4_1);
    case GgufWriter::kQ5_0: return blocks(put_q5_0);
    case GgufWriter::kQ4_K: return put_each(values, kSuperBlock, put_q4_k);
    case GgufWriter::kQ6_K: return put_each(values, kSuperBlock, put_q6_k);
    default: throw std::logic_error("random model: weight type");
  }
}

void add_tokenizer(GgufWriter& gguf, uint32_t vocab) {
  constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {kUnknown, kControl, kControl};
  std::vector<float> scores = {0, 0, 0};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + '>');
    types.push_back(kByte);
    scores.push_back(0);
  }
  tokens.push_back("\u2581");
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.push_back(std::string(1, letter));
  tokens.push_back(".");
  tokens.push_back(",");
  tokens.resize(vocab);
  while (scores.size() < tokens.size()) {
    types.push_back(kNormal);
    scores.push_back(-static_cast<float>(scores.size() - 259));
  }
  gguf.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.tokens", tokens);
  gguf.add("tokenizer.ggml.scores", scores).add("tokenizer.ggml.token_type", types);
  gguf.add("tokenizer.ggml.unknown_token_id", 0u).add("tokenizer.ggml.bos_token_id", 1u);
  gguf.add("tokenizer.ggml.eos_token_id", 2u).add("tokenizer.ggml.add_bos_token", true);
}

}  // namespace

GgufWriter random_model(const RandomModelOptions& options) {
  const std::string& arch = options.architecture;
  GgufWriter gguf;
  gguf.add("general.architecture", arch).add("general.name", "random " + arch);
  gguf.add(arch + ".block_count", options.num_layers).add(arch + ".context_length", options.context_length);
  gguf.add(arch + ".embedding_length", options.hidden_size);
  gguf.add(arch + ".feed_forward_length", options.intermediate_size);
  gguf.add(arch + ".attention.head_count", options.num_qo_heads);
  gguf.add(arch + ".attention.head_count_kv", options.num_kv_heads);
  gguf.add(arch + ".attention.key_length", options.head_dim);
  gguf.add(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.add(arch + ".rope.freq_base", options.theta).add(arch + ".rope.dimension_count", options.head_dim);
  const bool gemma = arch == "gemma2" || arch == "gemma3";
  if (gemma) gguf.add(arch + ".attention.sliding_window", options.sliding_window);
  if (arch == "gemma2") gguf.add(arch + ".attn_logit_softcapping", 5.f).add(arch + ".final_logit_softcapping", 3.f);
  add_tokenizer(gguf, options.vocab);

  Random random(options.seed);
  // Matrices keep the size of what passes through them; `gain` moves it.
  const auto matrix = [&](const std::string& name, uint64_t rows, uint64_t cols, double gain = 1.0) {
    std::vector<float> values(rows * cols);
    for (float& value : values)
      value = static_cast<float>(random.normal() * gain / std::sqrt(static_cast<double>(cols)));
    gguf.add_tensor(
        {.name = name, .extents = {cols, rows}, .type = options.weights, .data = pack(values, options.weights)});
  };
  const auto vector = [&](const std::string& name, uint64_t size, double mean) {
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(mean + 0.1 * random.normal());
    gguf.add_tensor(
        {.name = name, .extents = {size}, .type = GgufWriter::kF32, .data = pack(values, GgufWriter::kF32)});
  };
  const uint64_t hidden = options.hidden_size, q_rows = uint64_t{options.num_qo_heads} * options.head_dim;
  const uint64_t kv_rows = uint64_t{options.num_kv_heads} * options.head_dim;
  matrix("token_embd.weight", options.vocab, hidden, 2.0);
  for (uint32_t layer = 0; layer < options.num_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    vector(prefix + "attn_norm.weight", hidden, 1.0);
    matrix(prefix + "attn_q.weight", q_rows, hidden, 1.5);
    matrix(prefix + "attn_k.weight", kv_rows, hidden, 1.5);
    matrix(prefix + "attn_v.weight", kv_rows, hidden);
    if (arch == "qwen2") {
      vector(prefix + "attn_q.bias", q_rows, 0.0);
      vector(prefix + "attn_k.bias", kv_rows, 0.0);
      vector(prefix + "attn_v.bias", kv_rows, 0.0);
    }
    if (arch == "qwen3" || arch == "gemma3") {
      vector(prefix + "attn_q_norm.weight", options.head_dim, 1.0);
      vector(prefix + "attn_k_norm.weight", options.head_dim, 1.0);
    }
    matrix(prefix + "attn_output.weight", hidden, q_rows);
    if (options.output_bias) vector(prefix + "attn_output.bias", hidden, 0.0);
    if (gemma) vector(prefix + "post_attention_norm.weight", hidden, 1.0);
    vector(prefix + "ffn_norm.weight", hidden, 1.0);
    matrix(prefix + "ffn_gate.weight", options.intermediate_size, hidden);
    matrix(prefix + "ffn_up.weight", options.intermediate_size, hidden);
    matrix(prefix + "ffn_down.weight", hidden, options.intermediate_size);
    if (gemma) vector(prefix + "post_ffw_norm.weight", hidden, 1.0);
  }
  vector("output_norm.weight", hidden, 1.0);
  if (!options.tied) matrix("output.weight", options.vocab, hidden, 2.0);
  return gguf;
}

}  // namespace weft::testing
