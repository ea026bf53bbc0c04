#include "decode/fused/walk_layers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "decode/executor.h"
#include "decode/fused/check.h"
#include "decode/fused/walk.h"

namespace weft::decode::fused {
namespace {

class WalkLayers : public Layers {
 public:
  WalkLayers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options, const Sequences& sequences,
             const Machine& machine)
      : config_(config),
        team_(team_of(options)),
        partition_(partition_of(config, sources, machine)),
        weights_(partition_, std::move(sources)) {
    for (int layer = 0; layer < config.num_layers; ++layer) caches_.push_back(sequences.layer(layer));
    const DType dtype = caches_[0].k.dtype();
    check(dtype == DType::fp32 || dtype == DType::fp16 || dtype == DType::bf16, ErrorCode::unsupported,
          "kv_dtype: required {}; supported fp32, fp16 and bf16; missing: a fused step over others",
          weft::to_string(dtype));
  }

  void run(const Step& step, const StepOutput& output) override {
    seconds_ = {};
    seconds_.plan = seconds_of([&] { plan(step); });
    seconds_.enqueue = seconds_of([&] { walk(step, output.logits); });
  }
  double replay(const Step& step, const StepOutput& output, int count) override {
    return seconds_of([&] {
             for (int i = 0; i < count; ++i) walk(step, output.logits);
           }) /
           count;
  }
  int64_t most_rows(StepForm form) const override { return form == StepForm::layered ? 0 : kMostRows; }
  size_t weight_bytes() const override { return weights_.bytes_per_token(); }
  const StepSeconds& seconds() const override { return seconds_; }

 private:
  static Partition partition_of(const ModelConfig& config, const ModelSources& sources, const Machine& machine) {
    const Program program = make_program(config, parts_of(sources));
    return make_partition(program, form_of(program, sources), machine);
  }

  void plan(const Step& step) {
    const Program& program = partition_.program;
    StepShape shape{.kv_bytes = 2 * program.head_dim * bits_of(caches_[0].k.dtype()) / 8,
                    .wants_logits = !step.wanted.empty()};
    ropes_.resize(program.ropes.size());
    for (size_t kind = 0; kind < ropes_.size(); ++kind) {
      shape.items.push_back(attention_items(partition_, step, kind == 0 ? 0 : config_.sliding_window));
      ops::make_rope_table(step.positions, program.ropes[kind], program.head_dim, ropes_[kind]);
    }
    schedule_ = make_schedule(partition_, std::move(shape));
    require_sound(partition_, schedule_);
  }

  void walk(const Step& step, float* logits) {
    const WalkInput input{.step = &step, .caches = caches_, .ropes = ropes_};
    Walk walk(partition_, weights_, schedule_, input);
    walk.run(team_);
    for (const int64_t row : step.wanted) {
      const std::vector<float> from = walk.logits(static_cast<int>(row));
      logits = std::ranges::copy(from, logits).out;
    }
  }

  const ModelConfig& config_;
  WorkerTeam& team_;
  const Partition partition_;
  const WalkWeights weights_;
  std::vector<KvCache> caches_;
  std::vector<ops::RopeTable> ropes_;  // of the step
  Schedule schedule_;                  // of the step
  StepSeconds seconds_;
};

}  // namespace

std::unique_ptr<Layers> make_walk_layers(const ModelConfig& config, ModelSources sources, const ForwardOptions& options,
                                         const Sequences& sequences, const Machine& machine) {
  return std::make_unique<WalkLayers>(config, std::move(sources), options, sequences, machine);
}

}  // namespace weft::decode::fused
