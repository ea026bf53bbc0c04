// Attention of a model's layers: a kernel for those that see everything and one for those that see a window, and for
// each step their plans and angles of rotation. The same on every device.
#pragma once

#include <vector>

#include "decode/step.h"
#include "ops/rope.h"
#include "weft/attention.h"
#include "weft/levels.h"
#include "weft/model.h"

namespace weft::decode {

// The type of the cache. Throws Error(invalid_argument | unsupported) for one that the precision does not allow.
DType kv_dtype_of(const ForwardOptions& options);
KvScales kv_scales_of(DType kv_dtype);

// Steps with more rows are never captured: their buffers may be reallocated.
inline constexpr int64_t kMostRowsOfGraphs = 16;

class StepAttention {
 public:
  // For work in that stream. Both options outlive it. Throws what build throws, and Error(invalid_argument) for plan
  // options that no plan takes.
  StepAttention(const ModelConfig& config, const ForwardOptions& options, Stream stream);

  DType q_dtype() const { return kinds_[0].kernel.spec().q_dtype; }
  // Plans and angles for the rows of a step. A plan is made again where the last one does not cover the step.
  // num_shares: how often pages have got a further owner so far.
  void plan(const Step& step, int64_t num_shares);
  int64_t num_plans() const { return num_plans_; }  // made so far, by all kinds of layers
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
    // Of the last step, and of those to come that it covers.
    Plan plan;
    SharedLevels shared;
  };
  // What the plans were made for, beside lengths.
  struct Made {
    bool any = false, invariant = false;
    int64_t kv_tokens = 0, num_shares = 0;
    std::vector<int32_t> prefix_parents, prefix_pages, node_of_request;
  };
  int most_workers() const;
  PlanInput input_of(const Step& step);
  PlanMode mode_of(const Step& step) const;
  int split_of(const Step& step) const;  // tokens of a chunk, where the mode has such
  const PlanBounds* bounds_of(const Step& step);
  bool may_keep_plans(const Step& step, int64_t num_shares) const;
  static bool keep_plan(Kind& kind, const PlanInput& input);
  void make_plan(Kind& kind, const Step& step, const PlanInput& input, bool may_share);
  void add_kind(bool slides, const RopeParams& rope, std::vector<ScalarArg> scalars, DType kv_dtype);

  const ModelConfig& config_;
  const ForwardOptions& options_;
  Stream stream_;
  int workers_;              // of the stream; 0: as many as the kernel's plans have by default
  std::vector<Kind> kinds_;  // of layers that see everything; where some slide, theirs besides
  Made made_;
  PlanBounds bounds_;  // of the step
  int64_t num_plans_ = 0;
};

}  // namespace weft::decode
