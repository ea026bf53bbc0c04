#include "decode/fused/cuda/model_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::decode::fused {

TilesOf tiles_of(const Partition& partition) {
  return [&partition](WeightRole role, int layer) -> const TiledMatrix* {
    return role == WeightRole::embedding ? &partition.embedding : &partition.matrix_of(role, layer).tiles;
  };
}

ModelWeights::ModelWeights(const cuda::Runtime& runtime, Device device, std::shared_ptr<const CardWeights> matrices,
                           const ModelShape& shape, const ModelSources& sources, Stream stream)
    : matrices_(std::move(matrices)) {
  const std::string not_finite = matrices_->not_finite();
  check(not_finite.empty(), ErrorCode::unsupported,
        "the fused step: required {}; supported are finite ones; missing: sums of others", not_finite);
  std::vector<int64_t> offsets;  // -1: a stack of one part of layers has not all of them, and nobody asks where
  for (const CardLayerWeights& layer : matrices_->layers)
    for (const ops::CardMatrix* matrix : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
      offsets.push_back(matrix->rows > 0 ? offset_of(*matrix) : -1);
  std::vector<float> vectors(sources.layers.size() * static_cast<size_t>(shape.vectors_of_layer));
  for (size_t layer = 0; layer < sources.layers.size(); ++layer)
    for (const WeightRole role : kLayerVectors)
      if (const int64_t at = shape.vector_of(role); at >= 0)
        std::ranges::copy(sources.layers[layer].vectors.of(role),
                          vectors.begin() + static_cast<int64_t>(layer) * shape.vectors_of_layer + at);
  output_norm_ = static_cast<int64_t>(vectors.size());
  vectors.insert(vectors.end(), sources.output_norm.begin(), sources.output_norm.end());
  const auto upload = [&](const auto& from) {
    const Bytes piece{from.data(), static_cast<int64_t>(from.size() * sizeof from[0])};
    Workspace to(device, static_cast<size_t>(std::max<int64_t>(piece.size, 1)));
    runtime.write(device, to.data(), {&piece, 1}, stream);
    return to;
  };
  vectors_ = upload(vectors);
  offsets_ = upload(offsets);
}

// Its first tile's, as parts of a matrix in several types are refused.
int64_t ModelWeights::offset_of(const ops::CardMatrix& matrix) const {
  ensure(matrix.is_tiled(), "{} lies in planes", matrix.name);
  return reinterpret_cast<const char*>(matrix.typed_rows[0].tiles.data) -
         static_cast<const char*>(matrices_->matrices.data());
}

void ModelWeights::tell(ModelArgs& args) const {
  args.weights = static_cast<const unsigned char*>(matrices_->matrices.data());
  args.offsets = static_cast<const long long*>(offsets_.data());
  args.embedding = offset_of(matrices_->embedding);
  args.head = offset_of(matrices_->head());
  args.vectors = static_cast<const float*>(vectors_.data());
  args.output_norm = args.vectors + output_norm_;
}

}  // namespace weft::decode::fused
