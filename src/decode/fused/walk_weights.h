// A model's weights as the CPU walks them: every matrix in its line of tiles, each tile 16 rows of blocks as a file has
// them.
#pragma once

#include <functional>
#include <vector>

#include "decode/fused/partition.h"
#include "decode/weights.h"

namespace weft::decode::fused {

class WalkWeights {
 public:
  // Reads and packs. Throws Error(unsupported) for types that the walk does not multiply.
  WalkWeights(const Partition& partition, ModelSources sources);

  const char* matrix(int phase) const;  // of a phase's product
  const std::vector<float>& vector(WeightRole role, int layer) const;
  void embedding_row(int64_t row, float* to) const;
  size_t bytes_per_token() const { return bytes_per_token_; }

 private:
  const Partition& partition_;
  std::vector<float> output_norm_;
  std::vector<LayerVectors> layers_;
  std::vector<std::vector<char>> matrices_;  // of the phases' products; empty where the embedding is the head
  std::vector<char> embedding_;
  size_t bytes_per_token_ = 0;
};

// Numbers of a row of a tile: `cols` of them, whole blocks, as fp32.
void widen(WeightType type, const char* from, int64_t cols, float* to);

}  // namespace weft::decode::fused
