// What a fused step reads of a model: the matrices of CardWeights, which lie in the tiles of its partition, and
// vectors.
#pragma once

#include <memory>

#include "decode/cuda/weights.h"
#include "decode/fused/cuda/model_shape.h"
#include "decode/fused/partition.h"
#include "jit/cuda/runtime.h"
#include "weft/device.h"

namespace weft::decode::fused {

// In which the partition's workers stream a matrix. The partition outlives it.
TilesOf tiles_of(const Partition& partition);

class ModelWeights {
 public:
  // Matrices in the tiles of the partition. Throws Error(unsupported) for scales that are not finite.
  ModelWeights(const cuda::Runtime& runtime, Device device, std::shared_ptr<const CardWeights> matrices,
               const ModelShape& shape, const ModelSources& sources, Stream stream);

  size_t bytes_per_token() const { return matrices_->bytes_per_token(); }
  // Fills in where they lie.
  void tell(ModelArgs& args) const;

 private:
  int64_t offset_of(const ops::CardMatrix& matrix) const;

  std::shared_ptr<const CardWeights> matrices_;
  Workspace vectors_, offsets_;
  int64_t output_norm_ = 0;  // in vectors_, in floats
};

}  // namespace weft::decode::fused
