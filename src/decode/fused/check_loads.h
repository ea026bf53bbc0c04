// What the checker demands of loads: entries are free before they are filled, and there when they are read.
#pragma once

#include "decode/fused/check_state.h"

namespace weft::decode::fused {

class CheckedLoads {
 public:
  explicit CheckedLoads(CheckState& state) : state_(state) {}
  void issue(const Load& load);
  // A load of this phase that is there and not released; null: it is not, and that is among the findings.
  const Load* use(int index);

 private:
  void issue_keys(const Load& load);

  CheckState& state_;
  const Partition& partition_ = state_.partition;
  const Program& program_ = state_.program;
  const Schedule& schedule_ = state_.schedule;
  Findings& found_ = state_.found;
};

}  // namespace weft::decode::fused
