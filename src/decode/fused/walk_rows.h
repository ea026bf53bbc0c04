// What every worker of a walk computes itself, row by row: it reads what all may read, and runs the operations of a
// prologue on that.
#pragma once

#include <array>
#include <vector>

#include "decode/fused/walk_memory.h"

namespace weft::decode::fused {

class WalkRows {
 public:
  explicit WalkRows(Walk::Memory& memory) : memory_(memory) {}
  void reset();
  void begin_phase(int phase);

  void read(const WorkerStep& step);
  void prologue(Range columns);
  void write_residual(const WorkerStep& step) const;
  void merge(const WorkerStep& step) const;

  // What the prologue has made for the product: [rows, cols], without rows before the prologue.
  const std::vector<float>& x() const { return x_; }
  int64_t cols() const { return cols_; }
  // A head of queries, keys or values of a row, after all operations that stand before attention.
  std::vector<float> head_of(Buffer buffer, int row, int64_t head) const;

 private:
  using Rows = std::vector<float>;  // [rows, columns]
  using Buffers = std::array<Rows, kNumBuffers>;

  const float* cell(Shared buffer, int64_t index) const;
  float sum_of(const MatrixPartition& matrix, Shared buffer, int row, int64_t column) const;
  void gather_sums(const Phase& before, Buffers& buffers) const;
  void gather_attended(Rows& attended) const;
  void gather_residual(const Phase& phase, Rows& residual) const;
  // What the operations of the phase's prologue make, up to the residual or all.
  Buffers run_prologue(const Phase& phase, bool ends_with_residual) const;
  void run_operation(const Operation& operation, Buffers& buffers) const;

  Walk::Memory& memory_;
  int phase_ = -1;
  std::array<std::vector<float>, kNumShared> inbox_;  // cells that were read in this phase
  Rows x_, kept_;                                     // kept: the residual, where workers keep it
  int64_t cols_ = 0;
};

}  // namespace weft::decode::fused
