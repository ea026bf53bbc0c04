#include "decode/cpu/weights.h"

#include <utility>

namespace weft::decode {

size_t CpuWeights::bytes_per_token() const {
  size_t bytes = head().bytes() + output_norm.size() * sizeof(float);
  for (const CpuLayerWeights& layer : layers)
    bytes += layer.qkv.bytes() + layer.output.bytes() + layer.gate_up.bytes() + layer.down.bytes() +
             static_cast<size_t>(layer.vectors.size()) * sizeof(float);
  return bytes;
}

CpuWeights pack_weights(ModelSources sources, Precision precision, WorkerTeam& team,
                        const std::function<void(double)>& on_load) {
  CpuWeights weights;
  weights.layers.resize(sources.layers.size());
  // Matrices in the order in which they are packed, each with its place.
  std::vector<std::pair<gemm::PackedLinear*, const Sources*>> matrices{{&weights.embedding, &sources.embedding}};
  if (!sources.own_head.empty()) matrices.emplace_back(&weights.own_head, &sources.own_head);
  for (size_t i = 0; i < sources.layers.size(); ++i) {
    const LayerSources& from = sources.layers[i];
    CpuLayerWeights& to = weights.layers[i];
    matrices.insert(
        matrices.end(),
        {{&to.qkv, &from.qkv}, {&to.output, &from.output}, {&to.gate_up, &from.gate_up}, {&to.down, &from.down}});
  }
  std::erase_if(matrices, [](const auto& matrix) { return matrix.second->empty(); });
  const Isa isa = current_isa();
  size_t total = 0, done = 0;
  for (const auto& [to, from] : matrices) total += gemm::packed_bytes(*from, isa);
  weights.memory = Workspace(Device::cpu(), total);
  for (const auto& [to, from] : matrices) {
    *to = gemm::pack_linear(*from, precision, isa, team, static_cast<char*>(weights.memory.data()) + done);
    done += to->bytes();
    if (on_load) on_load(static_cast<double>(done) / static_cast<double>(total));
  }
  weights.output_norm = std::move(sources.output_norm);
  for (size_t i = 0; i < sources.layers.size(); ++i) weights.layers[i].vectors = std::move(sources.layers[i].vectors);
  return weights;
}

}  // namespace weft::decode
