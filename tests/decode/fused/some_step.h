// Steps of lengths alone, and their schedules.
#pragma once

#include <utility>
#include <vector>

#include "decode/fused/schedule.h"
#include "decode/sequences.h"
#include "tests/decode/fused/shapes.h"
#include "tests/decode/steps.h"

namespace weft::testing {

// A step of requests with so many rows and tokens each.
class SomeStep {
 public:
  explicit SomeStep(const std::vector<std::pair<int, int>>& requests)
      : sequences_(config_of_cache(), {.max_tokens = 1 << 16, .max_sequences = 16}, DType::fp32) {
    for (const auto& [rows, tokens] : requests) {
      const Sequences::Id id = sequences_.add();
      sequences_.append(id, tokens);
      add_rows(step, sequences_, id, std::vector<int32_t>(static_cast<size_t>(rows)));
    }
  }

  Step step;

 private:
  Sequences sequences_;
};

inline Schedule schedule_of(const Partition& partition, const Step& step, int64_t kv_element = 2) {
  StepShape shape{.kv_bytes = 2 * partition.program.head_dim * kv_element, .wants_logits = !step.wanted.empty()};
  for (size_t kind = 0; kind < partition.program.ropes.size(); ++kind)
    shape.items.push_back(attention_items(partition, step, kind == 0 ? 0 : 19));
  return make_schedule(partition, std::move(shape));
}

}  // namespace weft::testing
