// Random weights in file layout, with what they mean in fp64 (tests/support/reference_weights.h).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/gemm/linear.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/reference_weights.h"
#include "weft/error.h"

namespace weft::test {

inline uint16_t to_half(float x) {  // numbers of fp16's range, towards zero
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int exponent = static_cast<int>(bits >> 23 & 255) - 112;
  if (exponent <= 0) return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<int>(std::abs(x) * 0x1p24f));
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 1023));
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

inline std::vector<float> random_floats(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

// The number by which files name the type.
inline uint32_t file_type(WeightType type) {
  using testing::GgufWriter;
  switch (type) {
    case WeightType::f32: return GgufWriter::kF32;
    case WeightType::f16: return GgufWriter::kF16;
    case WeightType::bf16: return GgufWriter::kBF16;
    case WeightType::q8_0: return GgufWriter::kQ8_0;
    case WeightType::q5_0: return GgufWriter::kQ5_0;
    case WeightType::q4_0: return GgufWriter::kQ4_0;
    case WeightType::q4_1: return GgufWriter::kQ4_1;
    case WeightType::q4_k: return GgufWriter::kQ4_K;
    case WeightType::q6_k: return GgufWriter::kQ6_K;
    case WeightType::q4_g128: break;  // in no file
  }
  throw InternalError("a weight type that files do not have");
}

// Of a quantised type: inputs of a block, its bytes, where its fp16 scales stand, and about how large they are for
// weights of a standard deviation near 0.05.
struct BlockLayout {
  int weights = 1, bytes = 0;
  std::vector<int> scales = {};
  std::vector<float> around = {};
};
inline BlockLayout block_layout(WeightType type) {
  switch (type) {
    case WeightType::q8_0: return {32, 34, {0}, {0.0005f}};
    case WeightType::q5_0: return {32, 22, {0}, {0.005f}};
    case WeightType::q4_0: return {32, 18, {0}, {0.01f}};
    case WeightType::q4_1: return {32, 20, {0, 2}, {0.01f, -0.07f}};
    case WeightType::q4_k: return {256, 144, {0, 2}, {0.0003f, 0.002f}};
    case WeightType::q6_k: return {256, 210, {208}, {0.00003f}};
    case WeightType::q4_g128: return {128, 66, {0}, {0.01f}};
    default: return {};
  }
}
inline bool is_quantised(WeightType type) { return block_layout(type).bytes > 0; }
// The next width that whole blocks make.
inline int64_t whole_blocks(WeightType type, int64_t cols) {
  const int64_t block = block_layout(type).weights;
  return (cols + block - 1) / block * block;
}

// Any bits are legal integers; fp16 scales are drawn, or are all `scale` when that is given, and so are the bytes in
// between when `byte` is.
inline Weights random_weights(WeightType type, int64_t rows, int64_t cols, uint64_t seed, float scale = 0,
                              int byte = -1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Weights w{type, rows, cols, {}, std::vector<double>(static_cast<size_t>(rows * cols))};
  const auto put = [&](auto value) {
    uint8_t raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    w.bytes.insert(w.bytes.end(), raw, raw + sizeof value);
  };
  const BlockLayout layout = block_layout(type);
  if (!is_quantised(type)) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float x = normal(random) * (scale != 0 ? scale : 0.05f);
      if (type == WeightType::f32) put(x);
      if (type == WeightType::f16) put(to_half(x));
      if (type == WeightType::bf16) put(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
    }
  } else {
    for (int64_t block = 0; block < rows * cols / layout.weights; ++block) {
      const size_t begin = w.bytes.size();
      for (int i = 0; i < layout.bytes; ++i) put(static_cast<uint8_t>(byte >= 0 ? byte : random()));
      for (size_t i = 0; i < layout.scales.size(); ++i) {
        const float drawn = layout.around[i] * (0.5f + static_cast<float>(random() % 1000) / 1000.f);
        const uint16_t half = to_half(scale != 0 ? scale : drawn);
        std::memcpy(w.bytes.data() + begin + layout.scales[i], &half, sizeof half);
      }
    }
  }
  if (type == WeightType::q4_g128)
    testing::dequantise_q4_g128(w.bytes.data(), rows * cols, w.values.data());
  else
    testing::dequantise(file_type(type), w.bytes.data(), rows * cols, w.values.data());
  return w;
}

inline constexpr WeightType kWeightTypes[] = {WeightType::f32,  WeightType::f16,    WeightType::bf16, WeightType::q8_0,
                                              WeightType::q5_0, WeightType::q4_0,   WeightType::q4_1, WeightType::q4_k,
                                              WeightType::q6_k, WeightType::q4_g128};

}  // namespace weft::test
