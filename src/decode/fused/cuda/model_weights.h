// A model's weights on a card, in the tiles of a partition.
#pragma once

#include <functional>

#include "decode/fused/cuda/model_text.h"
#include "decode/fused/partition.h"
#include "decode/weights.h"
#include "jit/cuda/runtime.h"
#include "weft/device.h"

namespace weft::decode::fused {

class ModelWeights {
 public:
  // Reads and packs with the team; `on_load` is told the share that is done. Throws Error(unsupported) for types
  // without tiles, Error(out_of_memory), naming the bytes, and what reading throws.
  ModelWeights(const cuda::Runtime& runtime, Device device, const Partition& partition, const ModelShape& shape,
               const ModelSources& sources, WorkerTeam& team, const std::function<void(double)>& on_load,
               Stream stream);

  size_t bytes_per_token() const { return bytes_per_token_; }
  // Fills in where they lie.
  void tell(ModelArgs& args) const;

 private:
  Workspace matrices_, vectors_, offsets_;
  int64_t embedding_ = 0, head_ = 0;  // in matrices_, in bytes
  int64_t output_norm_ = 0;           // in vectors_, in floats
  size_t bytes_per_token_ = 0;
};

}  // namespace weft::decode::fused
