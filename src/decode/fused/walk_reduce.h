// Reductions of a worker of a walk: sums of a product become what the next one multiplies, by their owner, who keeps
// his part of the residual from phase to phase.
#pragma once

#include <vector>

#include "decode/fused/walk_rows.h"

namespace weft::decode::fused {

class WalkReduce {
 public:
  WalkReduce(Walk::Memory& memory, const WalkRows& rows) : memory_(memory), rows_(rows) {}
  void reset();
  void begin_phase(int phase) { phase_ = phase; }

  void keep(const WorkerStep& step);
  void reduce(const WorkerStep& step);

 private:
  using Columns = float[kBandRows];

  void sums_of(const Phase& phase, int row, int64_t cell, int64_t first_column, Columns& to) const;
  void run(const Operation& operation, int row, int64_t cell, Columns& values);

  Walk::Memory& memory_;
  const WalkRows& rows_;
  int phase_ = -1;
  int64_t cols_ = 0;                         // of the residual
  std::vector<float> residual_, kept_sums_;  // [rows, cols]
};

}  // namespace weft::decode::fused
