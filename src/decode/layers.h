// The layers of a model on one device: its weights, its buffers, and what a step does with them.
//
//   std::unique_ptr<Layers> layers = make_layers(config, read_sources(file), options, sequences);
//   layers->run(step, logits);                        // [step.wanted, vocab]
#pragma once

#include <memory>

#include "decode/forward.h"
#include "decode/step.h"
#include "decode/step_attention.h"
#include "decode/weights.h"
#include "weft/model.h"

namespace weft::decode {

class Layers {
 public:
  Layers(const ModelConfig& config, const ForwardOptions& options, Stream stream, const Sequences& sequences)
      : config_(config),
        options_(options),
        sequences_(sequences),
        stream_(stream),
        attention_(config, options, stream) {}
  virtual ~Layers() = default;

  // Keys and values go into the sequences' pages, the logits of the wanted rows to host memory; both are there when it
  // returns.
  void run(const Step& step, float* logits);
  virtual size_t weight_bytes() const = 0;  // read once for a token

  const StepSeconds& seconds() const { return seconds_; }  // of the last step
  // The last step's layers so many times more, one after another, on what lies there: seconds of each.
  double replay(const Step& step, float* logits, int count);

 protected:
  // What the layers read of the step, and room for its rows.
  virtual void upload(const Step& step) = 0;
  // All of the step: run_layers, or work that was captured of it.
  virtual void enqueue(const Step& step, float* logits) { run_layers(step, logits); }
  void run_layers(const Step& step, float* logits);

  // The rows of the embedding become the residual.
  virtual void embed(const Step& step) = 0;
  // Queries, keys and values of the residual, the latter two into the layer's pages.
  virtual void append(int layer) = 0;
  virtual void attend(int layer) = 0;
  // Of what the last layer goes on with: these rows alone.
  virtual void keep(const std::vector<int64_t>& rows) = 0;
  // Adds what attention gave to the residual, and then what the feed-forward part makes of that.
  virtual void feed_forward(int layer) = 0;
  // The logits of the rows that are left, there when the stream is synchronised.
  virtual void finish(float* logits) = 0;

  int64_t q_cols() const { return int64_t{config_.num_qo_heads} * config_.head_dim; }
  int64_t kv_cols() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }
  int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }

  const ModelConfig& config_;
  const ForwardOptions& options_;
  const Sequences& sequences_;
  Stream stream_;
  StepAttention attention_;

 private:
  StepSeconds seconds_;
};

inline WorkerTeam& team_of(const ForwardOptions& options) {
  return options.team != nullptr ? *options.team : WorkerTeam::shared();
}

// On options.device. Throws Error(unsupported) where the forward pass does not run there, and what reading weights
// throws. Config, options and sequences outlive it.
std::unique_ptr<Layers> make_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                    const Sequences& sequences);

}  // namespace weft::decode
