#include "decode/fused/cuda/model_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "decode/fused/cuda/tiled_weights.h"

namespace weft::decode::fused {
namespace {

constexpr int64_t kMatrixAlignment = 256;
constexpr WeightRole kOfLayer[] = {WeightRole::qkv, WeightRole::output, WeightRole::gate_up, WeightRole::down};

}  // namespace

ModelWeights::ModelWeights(const cuda::Runtime& runtime, Device device, const Partition& partition,
                           const ModelShape& shape, const ModelSources& sources, WorkerTeam& team,
                           const std::function<void(double)>& on_load, Stream stream) {
  struct Place {
    WeightRole role;
    const TiledMatrix* tiles;
    const Sources* sources;
    int64_t at;
  };
  std::vector<Place> places;
  int64_t bytes = 0;
  const auto place = [&](WeightRole role, const TiledMatrix& tiles, const Sources& from) {
    const int64_t at = bytes;
    places.push_back({role, &tiles, &from, at});
    bytes += (tiles.bytes + kMatrixAlignment - 1) / kMatrixAlignment * kMatrixAlignment;
    return at;
  };
  std::vector<int64_t> offsets;
  for (size_t layer = 0; layer < sources.layers.size(); ++layer)
    for (const WeightRole role : kOfLayer) {
      const Sources& from = matrix_of(sources, role, static_cast<int>(layer));
      const bool is_there = !from.empty();  // else nobody asks where
      offsets.push_back(is_there ? place(role, partition.matrix_of(role, static_cast<int>(layer)).tiles, from) : -1);
    }
  // A head that is the embedding lies once, as the head.
  const TiledMatrix& head = partition.matrices.back().tiles;
  const bool is_tied = sources.own_head.empty();
  head_ = place(WeightRole::head, head, is_tied ? sources.embedding : sources.own_head);
  const int64_t of_token = bytes;
  embedding_ = is_tied ? head_ : place(WeightRole::embedding, partition.embedding, sources.embedding);

  matrices_ = Workspace(device, static_cast<size_t>(bytes));
  for (const Place& each : places) {
    write_tiles(*each.tiles, each.role, *each.sources, runtime, device, static_cast<char*>(matrices_.data()) + each.at,
                team, stream);
    if (on_load) on_load(static_cast<double>(each.at + each.tiles->bytes) / static_cast<double>(bytes));
  }

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
  bytes_per_token_ = static_cast<size_t>(of_token) + vectors_.bytes();
}

void ModelWeights::tell(ModelArgs& args) const {
  args.weights = static_cast<const unsigned char*>(matrices_.data());
  args.offsets = static_cast<const long long*>(offsets_.data());
  args.embedding = embedding_;
  args.head = head_;
  args.vectors = static_cast<const float*>(vectors_.data());
  args.output_norm = args.vectors + output_norm_;
}

}  // namespace weft::decode::fused
