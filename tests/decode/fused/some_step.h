// Steps of lengths alone, and their schedules.
#pragma once

#include <utility>
#include <vector>

#include "decode/fused/schedule.h"
#include "decode/sequences.h"
#include "tests/decode/fused/shapes.h"

namespace weft::testing {

// A step of requests with so many rows and tokens each.
class SomeStep {
 public:
  explicit SomeStep(const std::vector<std::pair<int, int>>& requests)
      : sequences_(config_of_cache(), {.max_tokens = 1 << 16, .max_sequences = 16}, DType::fp32) {
    for (const auto& [rows, tokens] : requests) {
      const Sequences::Id id = sequences_.add();
      sequences_.append(id, tokens);
      for (int i = 0; i < rows; ++i) {
        step.wanted.push_back(step.rows());
        step.tokens.push_back(0);
        step.positions.push_back(tokens - rows + i);
      }
      step.qo_indptr.push_back(static_cast<int32_t>(step.rows()));
      step.pages.add(sequences_, id, tokens);
    }
  }

  Step step;

 private:
  static ModelConfig config_of_cache() {
    ModelConfig config;
    config.num_layers = config.num_kv_heads = 1;
    config.head_dim = 8;
    config.context_length = 1 << 20;
    return config;
  }
  Sequences sequences_;
};

inline Schedule schedule_of(const Partition& partition, const Step& step, int64_t kv_element = 2) {
  StepShape shape{.kv_bytes = 2 * partition.program.head_dim * kv_element, .wants_logits = !step.wanted.empty()};
  for (size_t kind = 0; kind < partition.program.ropes.size(); ++kind)
    shape.items.push_back(attention_items(partition, step, kind == 0 ? 0 : 19));
  return make_schedule(partition, std::move(shape));
}

}  // namespace weft::testing
