// What runs the operations of a program on one device: the model's weights there, the buffers of a step, the kernels.
//
//   LayerByLayer layers(make_program(config), make_executor(config, read_sources(file), options, sequences));
//   layers.run(step, {.logits = logits});
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "decode/program.h"
#include "decode/step.h"
#include "decode/step_attention.h"
#include "decode/weights.h"
#include "weft/model.h"

namespace weft::decode {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual size_t weight_bytes() const = 0;  // read once for a token

  // Whether `next` runs as one with `operation`, which stands before it: in the same call of `run`.
  virtual bool fuses(const Operation& operation, const Operation& next) const = 0;

  // Whether a step leaves ids alone, where they are asked for.
  virtual bool has_greedy() const { return false; }

  // A step: its plan, what the operations read of it and room for its rows, all of its work, the wait for its output.
  virtual void plan(const Step& step) = 0;
  virtual void upload(const Step& step) = 0;
  // Has `walk` run the operations, or repeats work that was captured of it. The output is in host memory after
  // `synchronize`.
  virtual void enqueue(const Step& step, const StepOutput& output, const std::function<void()>& walk) = 0;
  virtual void synchronize() = 0;

  // Called by `walk`. Operations that follow each other in the program, each but the first fused with the one before
  // it.
  virtual void run(std::span<const Operation> fused) = 0;
  // Of the residual and of what attention gave: these rows alone go on.
  virtual void keep(const std::vector<int64_t>& rows) = 0;
};

// What executors of devices share.
class DeviceExecutor : public Executor {
 public:
  DeviceExecutor(const ModelConfig& config, const ForwardOptions& options, Stream stream, const Sequences& sequences)
      : config_(config),
        options_(options),
        sequences_(sequences),
        stream_(stream),
        attention_(config, options, stream) {}

  void plan(const Step& step) override { attention_.plan(step, sequences_.num_shares()); }
  void synchronize() override { stream_.synchronize(); }

 protected:
  int64_t q_cols() const { return int64_t{config_.num_qo_heads} * config_.head_dim; }
  int64_t kv_cols() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }

  const ModelConfig& config_;
  const ForwardOptions& options_;
  const Sequences& sequences_;
  Stream stream_;
  StepAttention attention_;
};

// The one of that kind among operations that run as one; null: there is none.
inline const Operation* find(std::span<const Operation> fused, OperationKind kind) {
  for (const Operation& operation : fused)
    if (operation.kind == kind) return &operation;
  return nullptr;
}

inline WorkerTeam& team_of(const ForwardOptions& options) {
  return options.team != nullptr ? *options.team : WorkerTeam::shared();
}

// On options.device. Throws Error(unsupported) where the forward pass does not run there, and what reading weights
// throws. Config, options and sequences outlive it.
std::unique_ptr<Executor> make_executor(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                        const Sequences& sequences);

}  // namespace weft::decode
