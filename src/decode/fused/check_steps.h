// What the checker demands of steps: that they do what the program says, of what was read and loaded.
#pragma once

#include "decode/fused/check_loads.h"

namespace weft::decode::fused {

class CheckedSteps {
 public:
  explicit CheckedSteps(CheckState& state) : state_(state), loads_(state) {}
  // The worker's next step, which can be done.
  void take(const WorkerStep& step);

 private:
  bool begin_phase(int phase);
  void end_section();
  void forget_what_was_read();
  void take_of_product(const WorkerStep& step);
  void multiply(const WorkerStep& step);
  void reduce(const WorkerStep& step);
  int residual_writer() const;
  void take_of_attention(const WorkerStep& step);
  void write_states(const WorkerStep& step, const AttentionItem& item);
  void merge(const WorkerStep& step);

  CheckState& state_;
  const Partition& partition_ = state_.partition;
  const Program& program_ = state_.program;
  const Schedule& schedule_ = state_.schedule;
  Findings& found_ = state_.found;
  CheckedLoads loads_;
};

}  // namespace weft::decode::fused
