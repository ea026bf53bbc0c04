// Arguments of tests/decode/fused/worker_kernels.cpp, for host and kernel alike.
#pragma once

#include "decode/fused/cuda/kernels/model_args.h"

namespace weft::decode::fused {

// Of a layer, as most models have it: qkv, attention, merge, output, add, gate_up, gate, down, add.
inline constexpr int kLayerPhases = 9, kMergePhase = 2, kCopiedPhases = 2 * kLayerPhases;
constexpr bool copies_in(int phase) {
  const int in_layer = phase % kLayerPhases;
  return in_layer < kMergePhase || in_layer % 2 == 1;
}

struct WorkerArgs {
  ModelArgs model;
  // [phases]: whether the copying warp goes on while the phase before is the last one begun, and once its own is. Of a
  // phase that copies nothing: not written.
  bool *too_early = nullptr, *in_time = nullptr;
  bool* has_input = nullptr;  // [workers]
};

}  // namespace weft::decode::fused
