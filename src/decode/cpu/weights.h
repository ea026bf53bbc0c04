// A model's weights as the CPU multiplies them: everything packed lies in one piece of huge-page memory.
#pragma once

#include <functional>

#include "decode/weights.h"
#include "ops/gemm/linear.h"

namespace weft::decode {

struct CpuLayerWeights {
  LayerVectors vectors;
  gemm::PackedLinear qkv, output, gate_up, down;
};

struct CpuWeights {
  Workspace memory;  // what the matrices below lie in
  gemm::PackedLinear embedding;
  gemm::PackedLinear own_head;  // empty when the embedding is the head
  std::vector<float> output_norm;
  std::vector<CpuLayerWeights> layers;

  const gemm::PackedLinear& head() const { return own_head.rows() > 0 ? own_head : embedding; }
  const std::vector<float>& vector(WeightRole role, int layer) const {
    return role == WeightRole::output_norm ? output_norm : layers[static_cast<size_t>(layer)].vectors.of(role);
  }
  size_t bytes_per_token() const;  // of the matrices and vectors that one token multiplies
};

// Reads and packs with the whole team; `on_load` is told the share that is done.
CpuWeights pack_weights(ModelSources sources, Precision precision, WorkerTeam& team,
                        const std::function<void(double)>& on_load);

}  // namespace weft::decode
