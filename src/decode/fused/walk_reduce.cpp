#include "decode/fused/walk_reduce.h"

#include <algorithm>
#include <cmath>

namespace weft::decode::fused {
namespace {

float gate_of(Gate gate, float x) {
  if (gate == Gate::silu) return x / (1.f + std::exp(-x));
  constexpr float kFactor = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1.f + std::tanh(kFactor * (x + 0.044715f * x * x * x)));
}

}  // namespace

void WalkReduce::reset() {
  phase_ = -1;
  cols_ = memory_.program.cols_of(Buffer::residual);
  residual_.assign(static_cast<size_t>(memory_.rows * cols_), kPoison);
  kept_sums_ = residual_;
}

void WalkReduce::keep(const WorkerStep& step) {
  for (int row = 0; row < memory_.rows; ++row)
    for (int64_t cell = step.begin; cell < step.end; ++cell) {
      const float* from = rows_.embedded(row, cell);
      std::copy_n(from, std::min(kBandRows, cols_ - cell * kBandRows),
                  residual_.begin() + row * cols_ + cell * kBandRows);
    }
}

// Of the product before, or what the phase before has kept.
void WalkReduce::sums_of(const Phase& phase, int row, int64_t cell, int64_t first_column, Columns& to) const {
  const int64_t all = phase.writes == Shared::gated ? memory_.program.cols_of(Buffer::gated) : cols_;
  const int64_t cols = std::min(kBandRows, all - cell * kBandRows);
  for (int64_t i = 0; i < cols; ++i) {
    const int64_t column = cell * kBandRows + i;
    if (phase.norms_sums) {
      to[i] = kept_sums_[static_cast<size_t>(row * cols_ + column)];
    } else {
      const Phase& before = *memory_.partition.phases.before(phase_);
      to[i] = rows_.sum_of(memory_.partition.matrix_of(before), before.writes, row, first_column + column);
    }
  }
}

void WalkReduce::run(const Operation& operation, int row, int64_t cell, Columns& values) {
  const int64_t first = cell * kBandRows, cols = std::min(kBandRows, cols_ - first);
  const auto weight = [&](int64_t i) {
    return memory_.weights.vector(operation.weights[0].role, operation.layer)[static_cast<size_t>(first + i)];
  };
  float* const residual = residual_.data() + row * cols_ + first;
  // Of a norm of the residual whoever reads has the factor; of one of the sums squares were read.
  const bool norms_sums = operation.kind == OperationKind::norm && operation.reads[0] != Buffer::residual;
  const float factor = norms_sums ? rows_.norm_factor(Shared::squares, row) : 1.f;
  for (int64_t i = 0; i < cols; ++i) {
    switch (operation.kind) {
      case OperationKind::add_bias: values[i] += weight(i); break;
      case OperationKind::add: values[i] = residual[i] += values[i]; break;
      case OperationKind::norm: values[i] *= factor * weight(i); break;
      default: demand(false, "an operation of reductions that the walk does not have");
    }
  }
}

void WalkReduce::reduce(const WorkerStep& step) {
  const Phase& phase = memory_.phase(phase_);
  demand(phase.reduces() && step.buffer == phase.writes && step.begin >= 0 && step.begin < step.end &&
             step.end <= memory_.num_cells(step.buffer),
         "a reduction of cells that are not there");
  for (int64_t cell = step.begin; cell < step.end; ++cell) {
    float* const to = memory_.cell(step.buffer, cell);
    for (int row = 0; row < memory_.rows; ++row) {
      Columns values = {}, up = {};
      sums_of(phase, row, cell, 0, values);
      float squares = 0;
      if (phase.writes == Shared::gated) {
        sums_of(phase, row, cell, memory_.program.cols_of(Buffer::gate), up);
        const Gate gate = operations_of(phase, memory_.program)[0].gate;
        for (int i = 0; i < kBandRows; ++i) values[i] = gate_of(gate, values[i]) * up[i];
      } else {
        for (const Operation& operation : operations_of(phase, memory_.program)) {
          if (operation.kind == OperationKind::norm && operation.reads[0] == Buffer::residual)
            for (const float value : values) squares += value * value;
          run(operation, row, cell, values);
        }
      }
      if (phase.writes == Shared::squares) {
        for (const float value : values) squares += value * value;
        to[row] = squares;
        std::copy_n(values, std::min(kBandRows, cols_ - cell * kBandRows),
                    kept_sums_.begin() + row * cols_ + cell * kBandRows);
        continue;
      }
      std::ranges::copy(values, to + row * kBandRows);
      if (phase.writes == Shared::normed) to[memory_.rows * kBandRows + row] = squares;
    }
    memory_.publish(step.buffer, cell, phase_);
  }
}

}  // namespace weft::decode::fused
