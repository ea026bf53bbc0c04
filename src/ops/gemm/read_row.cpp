// One row of packed weights as fp32 (kernels/abi.h draws the panels).
#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "ops/elementwise.h"
#include "ops/gemm/packed.h"

namespace weft::gemm {
namespace {

// A column of a panel: element i of an array [...][panel] at `from`.
struct ColumnReader {
  int64_t panel, column;
  template <class T>
  T get(const char* from, int64_t i) const {
    T value;
    std::memcpy(&value, from + (i * panel + column) * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  }
};

// 16-bit numbers, `group` inputs of a column side by side.
void read_halves(const ColumnReader& at, const char* from, int64_t cols, int64_t group,
                 void (*convert)(const unsigned short*, long long, float*), float* to) {
  constexpr int64_t kChunk = 256;
  std::array<uint16_t, kChunk> halves;
  for (int64_t begin = 0; begin < cols; begin += kChunk, to += kChunk) {
    const int64_t count = std::min(kChunk, cols - begin);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t k = begin + i, place = (k / group * at.panel + at.column) * group + k % group;
      std::memcpy(&halves[static_cast<size_t>(i)], from + 2 * place, 2);
    }
    convert(halves.data(), count, to);
  }
}

void read_block(const ColumnReader& at, const char* block, Format format, float* to) {
  const BlockLayout layout = block_layout(format);
  const char* halves = block + layout.words * at.panel * 4;
  const char* bytes = halves + layout.halves * at.panel * 2;
  uint16_t packed[2] = {};
  for (int i = 0; i < layout.halves; ++i) packed[i] = at.get<uint16_t>(halves, i);
  float half[2];
  ops::elementwise().from_fp16(packed, 2, half);
  const auto factor = [&](int64_t i) { return layout.bytes == 0 ? 1.f : static_cast<float>(at.get<int8_t>(bytes, i)); };
  const float d = half[0] * factor(0), m = layout.halves == 2 ? half[1] * factor(1) : 0.f;
  const float second_d = format == Format::q6_k ? half[0] * factor(1) : d;
  const int offset = format == Format::q4_0 ? 8 : 0;
  for (int64_t j = 0; j < layout.words; ++j)
    for (int64_t byte = 0; byte < 4; ++byte) {
      const auto bits = static_cast<uint8_t>(at.get<uint32_t>(block, j) >> 8 * byte);
      if (layout.words == 8) {
        to[4 * j + byte] = static_cast<float>(static_cast<int8_t>(bits)) * (j < 4 ? d : second_d);
      } else {
        to[4 * j + byte] = static_cast<float>((bits & 15) - offset) * d + m;
        to[16 + 4 * j + byte] = static_cast<float>((bits >> 4) - offset) * d + m;
      }
    }
}

}  // namespace

void read_row(const PackedLinear& weights, int64_t row, float* to) {
  const PackedLinear::Impl& w = weights.impl();
  check(row >= 0 && row < w.rows, ErrorCode::invalid_argument, "read_row: row = {}; allowed are 0 to {}", row,
        w.rows - 1);
  const auto packed = std::find_if(w.sources.begin(), w.sources.end(),
                                   [&](const PackedSource& p) { return row < p.first_row + p.panels.rows; });
  const Panels& panels = packed->panels;
  const ColumnReader at{.panel = w.kernels->panel, .column = (row - packed->first_row) % w.kernels->panel};
  const char* from = panels.data + (row - packed->first_row) / at.panel * panels.panel_bytes;
  switch (panels.format) {
    case Format::f32:
      for (int64_t k = 0; k < w.cols; ++k) to[k] = at.get<float>(from, k);
      return;
    case Format::f16: return read_halves(at, from, w.cols, 1, ops::elementwise().from_fp16, to);
    case Format::bf16: return read_halves(at, from, w.cols, 2, ops::elementwise().from_bf16, to);
    default: break;
  }
  const int64_t block_bytes = panel_bytes(panels.format, kBlock, static_cast<int>(at.panel));
  for (int64_t b = 0; b < w.cols / kBlock; ++b) read_block(at, from + b * block_bytes, panels.format, to + b * kBlock);
}

}  // namespace weft::gemm
