#include "bench/random_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/check.h"
#include "base/fp16.h"

namespace weft::bench {
namespace {

constexpr int64_t kWeights = 4 << 20, kMostCols = 1 << 20;

struct Named {
  WeightType type;
  std::string name;
};
const std::vector<Named>& named() {
  static const std::vector<Named> all{{WeightType::bf16, "bf16"},
                                      {WeightType::q8_0, "q8_0"},
                                      {WeightType::q4_0, "q4_0"},
                                      {WeightType::q4_1, "q4_1"},
                                      {WeightType::q4_g128, "q4_g128"}};
  return all;
}

// The scale as the file has it, and what it is.
struct Half {
  uint16_t bits;
  float value;
};
Half to_half(float x) {
  const uint16_t bits = to_fp16(double{x});
  return {bits, static_cast<float>(from_fp16(bits))};
}
// x in steps from `least` on, between 0 and `most`.
uint8_t step_of(float x, float least, float step, int most) {
  return static_cast<uint8_t>(step == 0 ? 0 : std::clamp(static_cast<int>(std::lround((x - least) / step)), 0, most));
}

// A block of the type from as many numbers.
void quantise(WeightType type, std::span<const float> x, char* to) {
  const auto [low, high] = std::ranges::minmax_element(x);
  const float largest = std::max(std::fabs(*low), std::fabs(*high));
  const auto put = [&](Half half) {
    std::memcpy(to, &half.bits, 2);
    to += 2;
  };
  const auto put_nibbles = [&](float least, float step) {
    const size_t half = x.size() / 2;
    for (size_t i = 0; i < half; ++i)
      to[i] = static_cast<char>(step_of(x[i], least, step, 15) | step_of(x[i + half], least, step, 15) << 4);
  };
  switch (type) {
    case WeightType::bf16: {
      const uint32_t bits = std::bit_cast<uint32_t>(x[0]);
      const auto rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      std::memcpy(to, &rounded, 2);
      return;
    }
    case WeightType::q8_0: {
      const Half scale = to_half(largest / 127);
      put(scale);
      for (size_t i = 0; i < x.size(); ++i)
        to[i] = static_cast<char>(step_of(x[i], -127 * scale.value, scale.value, 254) - 127);
      return;
    }
    case WeightType::q4_1: {
      const Half scale = to_half((*high - *low) / 15), least = to_half(*low);
      put(scale), put(least);
      return put_nibbles(least.value, scale.value);
    }
    default: {  // 8 stands for 0
      const Half scale = to_half(largest / 7.5f);
      put(scale);
      return put_nibbles(-8 * scale.value, scale.value);
    }
  }
}

std::vector<char> make_blocks(WeightType type, float deviation) {
  const WeightBlock& block = weight_block(type);
  std::mt19937 random(20261127);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<char> blocks(static_cast<size_t>(kWeights / block.inputs * block.bytes));
  std::vector<float> x(static_cast<size_t>(block.inputs));
  for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(block.bytes)) {
    for (float& value : x) value = normal(random);
    quantise(type, x, blocks.data() + at);
  }
  return blocks;
}

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 32;
}

}  // namespace

std::span<const std::string> random_weight_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Named& one : named()) all.push_back(one.name);
    return all;
  }();
  return names;
}

WeightType weight_type_from_string(const std::string& name) {
  for (const Named& one : named())
    if (one.name == name) return one.type;
  fail(ErrorCode::invalid_argument, "weights = '{}'; allowed are {}", name, fmt::join(random_weight_names(), ", "));
}

RandomWeights::RandomWeights(WeightType type, float deviation) : type_(type) {
  check(std::ranges::any_of(named(), [&](const Named& one) { return one.type == type; }), ErrorCode::unsupported,
        "random weights: required type {}; supported are {}; missing {}", weft::to_string(type),
        fmt::join(random_weight_names(), ", "), weft::to_string(type));
  blocks_ = std::make_shared<const std::vector<char>>(make_blocks(type, deviation));
}

ops::WeightSource RandomWeights::source(int64_t rows, int64_t cols) const {
  const WeightBlock& block = weight_block(type_);
  check(cols >= 1 && cols <= kMostCols && cols % block.inputs == 0, ErrorCode::invalid_argument,
        "cols = {}; allowed are multiples of {} up to {}", cols, block.inputs, kMostCols);
  const int64_t row_bytes = cols / block.inputs * block.bytes;
  return {.type = type_,
          .rows = rows,
          .cols = cols,
          .read = [blocks = blocks_, row_bytes, block_bytes = block.bytes, number = mix(++sources_)](
                      int64_t begin, int64_t end, void* to) {
            const auto places =
                static_cast<uint64_t>((static_cast<int64_t>(blocks->size()) - row_bytes) / block_bytes + 1);
            auto* at = static_cast<char*>(to);
            for (int64_t row = begin; row < end; ++row, at += row_bytes) {
              const auto first = static_cast<int64_t>(mix(number + static_cast<uint64_t>(row)) % places);
              std::memcpy(at, blocks->data() + first * block_bytes, static_cast<size_t>(row_bytes));
            }
          }};
}

}  // namespace weft::bench
