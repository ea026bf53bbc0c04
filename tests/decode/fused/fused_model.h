// A model with random weights for tests of the fused step: its partition, and steps over sequences, by the walk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/fused/check.h"
#include "decode/fused/walk.h"
#include "tests/decode/steps.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft::testing {

using namespace weft::decode;
using namespace weft::decode::fused;

// Small rings and chunks, so that small models go round them; x_bytes hold the tiles of a head of 96 columns, so that
// wider matrices have panels.
inline Machine small_machine(int workers, EdgeForm edge = EdgeForm::counter) {
  return {.workers = workers,
          .ring_bytes = 40 << 10,
          .entry_bytes = 16 << 10,
          .x_bytes = 16 * 128,
          .max_entries = 5,
          .kv_chunk = 16,
          .edge = edge};
}

class FusedModel {
 public:
  using Change = std::function<void(ModelSources&)>;
  FusedModel(
      const std::string& path, const Machine& machine, DType kv_dtype = DType::fp32,
      const Change& change = [](ModelSources&) {})
      : file_(path),
        options_{.precision = kv_dtype == DType::fp32 ? Precision::exact : Precision::standard,
                 .max_tokens = 512,
                 .max_sequences = 4,
                 .page_size = 8,
                 .kv_dtype = kv_dtype},
        sequences_(file_.config(), options_, kv_dtype) {
    const Program program = make_program(file_.config());
    ModelSources sources = read_sources(file_);
    change(sources);
    partition = make_partition(program, form_of(program, sources), machine);
    weights = std::make_unique<WalkWeights>(partition, std::move(sources));
    for (int layer = 0; layer < program.num_layers; ++layer) caches_.push_back(sequences_.layer(layer));
  }

  Sequences& sequences() { return sequences_; }
  const std::vector<KvCache>& caches() const { return caches_; }

  // Tokens go behind those that the sequences hold.
  Step step_of(const std::vector<std::pair<Sequences::Id, std::vector<int32_t>>>& inputs) {
    Step step;
    for (const auto& [sequence, tokens] : inputs) {
      sequences_.append(sequence, static_cast<int64_t>(tokens.size()));
      add_rows(step, sequences_, sequence, tokens);
    }
    return step;
  }

  Schedule schedule_of(const Step& step, bool wants_logits = true) const {
    StepShape shape{.kv_bytes = 2 * partition.program.head_dim * bits_of(caches_[0].k.dtype()) / 8,
                    .wants_logits = wants_logits};
    for (size_t kind = 0; kind < partition.program.ropes.size(); ++kind)
      shape.items.push_back(attention_items(partition, step, kind == 0 ? 0 : file_.config().sliding_window));
    return make_schedule(partition, std::move(shape));
  }

  // What the walk of a step reads; valid until the next call.
  const WalkInput& input_of(const Step& step) {
    ropes_.resize(partition.program.ropes.size());
    for (size_t kind = 0; kind < ropes_.size(); ++kind)
      ops::make_rope_table(step.positions, partition.program.ropes[kind], partition.program.head_dim, ropes_[kind]);
    input_ = {.step = &step, .caches = caches_, .ropes = ropes_};
    return input_;
  }

  // Logits of all rows.
  std::vector<std::vector<float>> run(const Step& step, WorkerTeam& team) {
    const Schedule schedule = schedule_of(step);
    require_sound(partition, schedule);
    Walk walk(partition, *weights, schedule, input_of(step));
    walk.run(team);
    std::vector<std::vector<float>> logits;
    for (int row = 0; row < step.rows(); ++row) logits.push_back(walk.logits(row));
    return logits;
  }

  Partition partition;
  std::unique_ptr<WalkWeights> weights;

 private:
  ModelFile file_;
  ForwardOptions options_;
  Sequences sequences_;
  std::vector<KvCache> caches_;
  std::vector<ops::RopeTable> ropes_;
  WalkInput input_;
};

}  // namespace weft::testing
