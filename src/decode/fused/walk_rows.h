// What a worker of a walk reads, and what it computes of that itself, row by row: what products multiply, heads of
// attention, merges.
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
  void merge(const WorkerStep& step) const;

  // What the product multiplies: [rows, cols], without rows before the prologue.
  const std::vector<float>& x() const { return x_; }
  int64_t cols() const { return cols_; }
  // What the row's sums are multiplied by: 1 / rms of what was normed; 1 without a norm.
  float factor(int row) const { return factors_[static_cast<size_t>(row)]; }
  // Of the residual that the prologue has made from the embedding: columns of a cell.
  const float* embedded(int row, int64_t cell) const;
  // A head of queries, keys or values of a row, after all operations that stand before attention.
  std::vector<float> head_of(Buffer buffer, int row, int64_t head) const;
  // A column of a product: its band's pieces in the order of panels and of slots.
  float sum_of(const MatrixPartition& matrix, Shared buffer, int row, int64_t column) const;
  // 1 / rms of a row, by the squares that were read of all its columns.
  float norm_factor(Shared buffer, int row) const;

 private:
  using Rows = std::vector<float>;  // [rows, columns]

  const float* cell(Shared buffer, int64_t index) const;
  void embed(const Phase& phase);
  void gather(const Phase& before);

  Walk::Memory& memory_;
  int phase_ = -1;
  std::array<std::vector<float>, kNumShared> inbox_;  // cells that were read in this phase
  Rows x_, residual_;
  std::vector<float> factors_;  // of rows
  int64_t cols_ = 0;
};

}  // namespace weft::decode::fused
