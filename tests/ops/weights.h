// Weights in file layout, and what they mean in fp64: written from the format's description, apart from the packer.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/gemm/linear.h"

namespace weft::test {

inline uint16_t to_half(float x) {  // normal numbers only
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023));
}
inline double from_half(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const double fraction = h & 1023, sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
}

struct Weights {
  WeightType type;
  int64_t rows, cols;
  std::vector<uint8_t> bytes;  // as in the file
  std::vector<double> values;  // [rows, cols]

  gemm::WeightSource source() const {
    const int64_t row_bytes = static_cast<int64_t>(bytes.size()) / rows;
    return {type, rows, cols, [this, row_bytes](int64_t begin, int64_t end, void* to) {
              std::memcpy(to, bytes.data() + begin * row_bytes, static_cast<size_t>((end - begin) * row_bytes));
            }};
  }
};

// Any bits are legal integers; scales are drawn, or are all `scale` when that is given.
inline Weights random_weights(WeightType type, int64_t rows, int64_t cols, uint64_t seed, float scale = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Weights w{type, rows, cols, {}, {}};
  auto put = [&](auto value) {
    uint8_t raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    w.bytes.insert(w.bytes.end(), raw, raw + sizeof value);
  };
  auto draw_scale = [&](float around) {
    const uint16_t half = to_half(scale != 0 ? scale : around * (0.5f + static_cast<float>(random() % 1000) / 1000.f));
    put(half);
    return from_half(half);
  };
  if (type == WeightType::f32 || type == WeightType::bf16) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float x = normal(random) * (scale != 0 ? scale : 0.05f);
      if (type == WeightType::f32) {
        put(x);
        w.values.push_back(x);
      } else {
        const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
        put(half);
        w.values.push_back(std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
      }
    }
    return w;
  }
  for (int64_t block = 0; block < rows * cols / 32; ++block) {
    const double d = draw_scale(type == WeightType::q8_0 ? 0.0005f : 0.01f);
    const double m = type == WeightType::q4_1 ? draw_scale(-0.07f) : 0;
    double values[32];
    for (int i = 0; i < (type == WeightType::q8_0 ? 32 : 16); ++i) {
      const auto byte = static_cast<uint8_t>(random());
      put(byte);
      if (type == WeightType::q8_0) {
        values[i] = d * static_cast<int8_t>(byte);
      } else {
        const int offset = type == WeightType::q4_0 ? 8 : 0;
        values[i] = d * ((byte & 15) - offset) + m;
        values[i + 16] = d * ((byte >> 4) - offset) + m;
      }
    }
    w.values.insert(w.values.end(), values, values + 32);
  }
  return w;
}

inline constexpr WeightType kWeightTypes[] = {WeightType::f32, WeightType::bf16, WeightType::q8_0, WeightType::q4_0,
                                              WeightType::q4_1};

}  // namespace weft::test
