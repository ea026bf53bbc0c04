// Attention of a model's layers: a kernel for those that see everything and one for those that see a window, and for each
// step their plans and angles of rotation. The same on every device.
#pragma once

#include <vector>

#include "decode/step.h"
#include "ops/rope.h"
#include "weft/attention.h"
#include "weft/model.h"

namespace weft::decode {

// The type of the cache. Throws Error(invalid_argument | unsupported) for one that the precision does not allow.
DType kv_dtype_of(const ForwardOptions& options);
KvScales kv_scales_of(DType kv_dtype);

class StepAttention {
 public:
  // For work in that stream. Both options outlive it. Throws what build throws, and Error(invalid_argument) for plan options
  // that no plan takes.
  StepAttention(const ModelConfig& config, const ForwardOptions& options, Stream stream);

  DType q_dtype() const { return kinds_[0].kernel.spec().q_dtype; }
  // Plans and angles for the rows of a step.
  void plan(const Step& step, bool pages_may_be_shared);
  // The layer's attention: tensors are q, kv and o; the rest is the model's.
  void run(int layer, AttentionTensors tensors);

  // Layers of a kind rotate by the same angles.
  size_t num_kinds() const { return kinds_.size(); }
  size_t kind_of(int layer) const;
  const Workspace& workspace(size_t kind) const { return kinds_[kind].workspace; }  // with the plan of the step
  const ops::RopeTable& rope(size_t kind) const { return kinds_[kind].rope; }

 private:
  struct Kind {
    AttentionKernel kernel;
    RopeParams rope_params;
    std::vector<ScalarArg> plan_scalars;
    Workspace workspace;  // holds the plan
    ops::RopeTable rope;
  };
  void add_kind(bool slides, const RopeParams& rope, std::vector<ScalarArg> scalars, DType kv_dtype);

  const ModelConfig& config_;
  const ForwardOptions& options_;
  Stream stream_;
  int workers_;
  std::vector<Kind> kinds_;  // of layers that see everything; where some slide, theirs besides
};

}  // namespace weft::decode
