#include "decode/fused/walk_weights.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/fp16.h"

namespace weft::decode::fused {
namespace {

float half_at(const char* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return static_cast<float>(from_fp16(bits));
}

bool walks(WeightType type) {
  switch (type) {
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
    case WeightType::q8_0:
    case WeightType::q4_0:
    case WeightType::q4_1:
    case WeightType::q4_g128: return true;
    default: return false;
  }
}

// The tiles of a matrix from its sources, which are the parts' rows in order.
std::vector<char> pack(const TiledMatrix& tiles, WeightRole role, const Sources& sources) {
  std::vector<char> bytes(static_cast<size_t>(tiles.bytes));
  std::vector<char> file_row;
  int64_t row = 0;
  for (const ops::WeightSource& source : sources) {
    check(walks(source.type), ErrorCode::unsupported,
          "{}: required weights of type {}; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; missing: a "
          "walk that multiplies these",
          to_string(role), weft::to_string(source.type));
    const WeightBlock& block = weight_block(source.type);
    const int64_t row_bytes = source.cols / block.inputs * block.bytes;
    const int64_t of_tile = tiles.tile_cols / block.inputs * block.bytes;
    file_row.resize(static_cast<size_t>(row_bytes));
    for (int64_t r = 0; r < source.rows; ++r, ++row) {
      source.read(r, r + 1, file_row.data());
      const int64_t band = tiles.band_of_row(row), in_band = row - tiles.first_row_of(band);
      for (int64_t t = 0; t < tiles.band_tiles; ++t)
        std::memcpy(bytes.data() + tiles.byte_of(tiles.tile_at(band, t)) + in_band * of_tile,
                    file_row.data() + t * of_tile, static_cast<size_t>(std::min(of_tile, row_bytes - t * of_tile)));
    }
  }
  return bytes;
}

const Sources& sources_for(const ModelSources& sources, const Phase& phase) {
  if (phase.layer < 0) return sources.own_head;
  const LayerSources& layer = sources.layers[static_cast<size_t>(phase.layer)];
  switch (phase.role) {
    case WeightRole::qkv: return layer.qkv;
    case WeightRole::output: return layer.output;
    case WeightRole::gate_up: return layer.gate_up;
    default: return layer.down;
  }
}

}  // namespace

WalkWeights::WalkWeights(const Partition& partition, ModelSources sources)
    : partition_(partition), output_norm_(std::move(sources.output_norm)) {
  embedding_ = pack(partition.embedding, WeightRole::embedding, sources.embedding);
  for (const Phase& phase : partition.phases.all) {
    std::vector<char>& matrix = matrices_.emplace_back();
    if (!phase.multiplies()) continue;
    const TiledMatrix& tiles = partition.matrix_of(phase).tiles;
    if (phase.layer >= 0 || !sources.own_head.empty()) matrix = pack(tiles, phase.role, sources_for(sources, phase));
    bytes_per_token_ += static_cast<size_t>(tiles.bytes);
  }
  bytes_per_token_ += output_norm_.size() * sizeof(float);
  for (LayerSources& layer : sources.layers) {
    bytes_per_token_ += static_cast<size_t>(layer.vectors.size()) * sizeof(float);
    layers_.push_back(std::move(layer.vectors));
  }
}

const char* WalkWeights::matrix(int phase) const {
  const auto index = static_cast<size_t>(phase);
  return matrices_[index].empty() ? embedding_.data() : matrices_[index].data();
}

const std::vector<float>& WalkWeights::vector(WeightRole role, int layer) const {
  if (role == WeightRole::output_norm) return output_norm_;
  const LayerVectors& vectors = layers_[static_cast<size_t>(layer)];
  switch (role) {
    case WeightRole::attn_norm: return vectors.attn_norm;
    case WeightRole::qkv_bias: return vectors.qkv_bias;
    case WeightRole::q_norm: return vectors.q_norm;
    case WeightRole::k_norm: return vectors.k_norm;
    case WeightRole::output_bias: return vectors.output_bias;
    case WeightRole::attn_post_norm: return vectors.attn_post_norm;
    case WeightRole::ffn_norm: return vectors.ffn_norm;
    default: return vectors.ffn_post_norm;
  }
}

void WalkWeights::embedding_row(int64_t row, float* to) const {
  const TiledMatrix& tiles = partition_.embedding;
  const int64_t band = tiles.band_of_row(row), in_band = row - tiles.first_row_of(band);
  const TiledMatrix::Part& part = tiles.part_of_band(band);
  std::vector<float> wide(static_cast<size_t>(tiles.tile_cols));
  for (int64_t t = 0; t < tiles.band_tiles; ++t) {
    const int64_t first = t * tiles.tile_cols;
    widen(part.type,
          embedding_.data() + tiles.byte_of(tiles.tile_at(band, t)) + in_band * (part.tile_bytes / kBandRows),
          tiles.tile_cols, wide.data());
    std::copy_n(wide.begin(), std::min(tiles.tile_cols, tiles.cols - first), to + first);
  }
}

void widen(WeightType type, const char* from, int64_t cols, float* to) {
  const WeightBlock& block = weight_block(type);
  switch (type) {
    case WeightType::f32: std::memcpy(to, from, static_cast<size_t>(cols) * sizeof(float)); return;
    case WeightType::f16:
      for (int64_t i = 0; i < cols; ++i) to[i] = half_at(from + 2 * i);
      return;
    case WeightType::bf16:
      for (int64_t i = 0; i < cols; ++i) {
        uint16_t bits;
        std::memcpy(&bits, from + 2 * i, sizeof bits);
        to[i] = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      }
      return;
    case WeightType::q8_0:
      for (int64_t b = 0; b < cols / block.inputs; ++b, from += block.bytes, to += block.inputs) {
        const float scale = half_at(from);
        for (int64_t i = 0; i < block.inputs; ++i)
          to[i] = scale * static_cast<float>(static_cast<signed char>(from[2 + i]));
      }
      return;
    case WeightType::q4_0:
    case WeightType::q4_1:
    case WeightType::q4_g128: {
      const bool has_least = type == WeightType::q4_1;
      const int64_t half = block.inputs / 2;
      for (int64_t b = 0; b < cols / block.inputs; ++b, from += block.bytes, to += block.inputs) {
        const float scale = half_at(from), least = has_least ? half_at(from + 2) : -8 * scale;
        const char* nibbles = from + (has_least ? 4 : 2);
        for (int64_t i = 0; i < half; ++i) {
          to[i] = scale * static_cast<float>(nibbles[i] & 15) + least;
          to[i + half] = scale * static_cast<float>(nibbles[i] >> 4 & 15) + least;
        }
      }
      return;
    }
    default:
      fail(ErrorCode::unsupported,
           "the walk: required weights of type {}; supported are F32, F16, BF16, Q8_0, "
           "Q4_0, Q4_1 and Q4_G128; missing: this type",
           weft::to_string(type));
  }
}

}  // namespace weft::decode::fused
