// A model on a card as one kernel: its weights, its tables, what a step brings, and the launch.
//
//   ModelKernel model(config, weights, sources, partition, options, sequences, stream);
//   model.plan(step);
//   model.upload(step);
//   model.launch(step, false);                // [step.rows(), vocabulary] at model.logits(), in the stream's order
//   ... waits for the stream ...
//   model.check_stuck();
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "decode/fused/cuda/attention_tables.h"
#include "decode/fused/cuda/model_text.h"
#include "decode/fused/cuda/model_weights.h"
#include "decode/fused/cuda/tagged_cells.h"
#include "decode/sequences.h"
#include "decode/step.h"
#include "ops/rope.h"
#include "weft/model.h"

namespace weft::decode::fused {

class ModelKernel {
 public:
  // The partition is check_fused's; the weights lie in its tiles.
  ModelKernel(const ModelConfig& config, std::shared_ptr<const CardWeights> weights, const ModelSources& sources,
              Partition partition, const ForwardOptions& options, const Sequences& sequences, Stream stream);

  int most_rows() const { return most_rows_; }  // of a step: as many as kernels fit for
  // The kernels of all numbers of rows now, several at a time: no step compiles one.
  void load_all();

  size_t weight_bytes() const { return weights_->bytes_per_token(); }

  void plan(const Step& step);  // throws Error(unsupported) for more rows than most_rows()
  void upload(const Step& step);
  // `greedy`: the id of each row's greatest logit lies at ids(), too.
  void launch(const Step& step, bool greedy);
  float* logits() const { return static_cast<float*>(logits_.data()); }
  int* ids() const { return static_cast<int*>(ids_.data()); }
  // For measurements: launches from now on copy nothing of a phase before its input is there.
  void hold_back(bool holds) { args_.holds_back = holds; }

  // Launches leave their times until they are read, by kernels of their own: those of the last one, by phases and
  // workers: [phases, workers, kNumStamps], in nanoseconds. Waits for the stream.
  void start_trace();
  std::vector<uint64_t> read_trace();
  const Phases& phases() const { return partition_.phases; }
  int num_workers() const { return partition_.machine.workers; }

  // Once the launch has ended; looks at the host's memory alone. Throws Error(device_failed) where a wait of the kernel
  // gave up: which worker in which phase. What workers handed on is forgotten then: the next step is a new begin.
  void check_stuck();

 private:
  // Of steps of up to so many rows.
  struct Variant {
    ModelShape shape;
    cuda::KernelText text;
    const cuda::LoadedKernel *kernel = nullptr, *timed = nullptr;  // the latter once it is asked for
    TaggedCells cells = {};
  };
  Variant& variant_of(int64_t rows);
  const cuda::LoadedKernel& kernel_of(Variant& variant);
  void make_tables();
  void make_cells(Variant& variant, int64_t num_states);

  const ModelConfig& config_;
  const ForwardOptions& options_;
  const cuda::Runtime& runtime_;
  const Device device_;
  Stream stream_;
  Partition partition_;
  int most_rows_ = 0;
  std::optional<ModelWeights> weights_;
  std::array<std::optional<Variant>, 4> variants_ = {};  // 1, 2, 4 and 8 rows, as far as they fit
  ModelArgs args_ = {};                                  // of all launches
  Workspace tables_, logits_, ids_, trace_, uploaded_;
  Workspace stuck_;  // pinned: workers write to it where a wait gives up, and never else

  // Of the step, by kinds of layers; and what of it the next one goes on from.
  struct Kind {
    std::optional<Plan> plan;
    AttentionItems items;
    AttentionTables tables;
    ops::RopeTable rope;
  };
  std::vector<Kind> kinds_;
};

// What the kernel runs on: chunks of keys follow from the size of heads.
Machine card_machine(int workers, const Program& program);
// With options.step_ctas workers, or one for each multiprocessor of the card. Throws Error(invalid_argument) for more.
Partition card_partition(const ForwardOptions& options, const Program& program, const ModelSources& sources);

}  // namespace weft::decode::fused
