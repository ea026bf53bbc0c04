#include "decode/fused/walk_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::decode::fused {
namespace {

void norm_row(const float* x, const float* weight, int64_t cols, float eps, float* y) {
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(cols) + static_cast<double>(eps));
  for (int64_t i = 0; i < cols; ++i)
    y[i] = static_cast<float>(static_cast<double>(x[i]) * scale * static_cast<double>(weight[i]));
}

void rotate_head(const ops::RopeTable& rope, int row, float* head) {
  const float* cos = rope.cos.data() + static_cast<int64_t>(row) * rope.pairs;
  const float* sin = rope.sin.data() + static_cast<int64_t>(row) * rope.pairs;
  const bool halves = rope.order == RopePairs::halves;
  for (int i = 0; i < rope.pairs; ++i) {
    float& a = head[halves ? i : 2 * i];
    float& b = head[halves ? i + rope.pairs : 2 * i + 1];
    const float turned = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = turned;
  }
}

}  // namespace

void WalkRows::reset() {
  for (size_t i = 0; i < kNumShared; ++i) inbox_[i].assign(memory_.shared[i].size(), kPoison);
  begin_phase(-1);
}

void WalkRows::begin_phase(int phase) {
  phase_ = phase;
  x_.clear();
  residual_.clear();
  factors_.assign(static_cast<size_t>(memory_.rows), 1.f);
  if (!memory_.poisons) return;
  for (std::vector<float>& values : inbox_) std::ranges::fill(values, kPoison);
}

void WalkRows::read(const WorkerStep& step) {
  const int64_t floats = memory_.floats_of_cell(step.buffer);
  demand(step.begin >= 0 && step.begin <= step.end && step.end <= memory_.num_cells(step.buffer),
         "a read beyond its buffer");
  std::copy_n(memory_.cell(step.buffer, step.begin), (step.end - step.begin) * floats,
              inbox_[static_cast<size_t>(step.buffer)].begin() + step.begin * floats);
}

const float* WalkRows::cell(Shared buffer, int64_t index) const {
  return inbox_[static_cast<size_t>(buffer)].data() + index * memory_.floats_of_cell(buffer);
}

float WalkRows::sum_of(const MatrixPartition& matrix, Shared buffer, int row, int64_t column) const {
  const int64_t band = matrix.tiles.band_of_row(column), in_band = column - matrix.tiles.first_row_of(band);
  float sum = 0;
  matrix.each_slot(band, [&](int slot) { sum += cell(buffer, slot)[row * kBandRows + in_band]; });
  return sum;
}

float WalkRows::norm_factor(Shared buffer, int row) const {
  double squares = 0;
  const int64_t at = buffer == Shared::normed ? memory_.rows * kBandRows : 0;
  for (int64_t i = 0; i < memory_.num_cells(buffer); ++i) squares += static_cast<double>(cell(buffer, i)[at + row]);
  const auto cols = static_cast<double>(memory_.program.cols_of(Buffer::residual));
  return static_cast<float>(1 / std::sqrt(squares / cols + static_cast<double>(memory_.program.norm_eps)));
}

void WalkRows::merge(const WorkerStep& step) const {
  const Phase& phase = memory_.phase(phase_);
  demand(phase.merges() && step.buffer == phase.writes && step.begin >= 0 && step.begin <= step.end &&
             step.end <= memory_.num_cells(phase.writes),
         "a merge of cells that are not there");
  const AttentionItems& items = memory_.schedule.items_of(phase, memory_.program);
  const int64_t dim = memory_.program.head_dim, of_head = memory_.partition.head_cells();
  for (int64_t at = step.begin; at < step.end; ++at) {
    const int64_t first = at % of_head * kBandRows, cols = std::min(kBandRows, dim - first);
    for (int row = 0; row < memory_.rows; ++row) {
      const std::vector<int> states = items.states_of(row, static_cast<int>(at / of_head), memory_.group());
      float merged[kBandRows] = {}, largest = -std::numeric_limits<float>::infinity(), weights = 0;
      for (const int state : states) largest = std::max(largest, cell(Shared::states, state)[dim]);
      for (const int state : states) {
        const float* from = cell(Shared::states, state);
        if (from[dim + 1] == 0.f) continue;  // the row sees none of the item's keys
        const float scale = std::exp(from[dim] - largest);
        weights += scale * from[dim + 1];
        for (int64_t i = 0; i < cols; ++i) merged[i] += scale * from[first + i];
      }
      for (int64_t i = 0; i < cols; ++i) memory_.cell(phase.writes, at)[row * kBandRows + i] = merged[i] / weights;
    }
    memory_.publish(phase.writes, at, phase_);
  }
}

const float* WalkRows::embedded(int row, int64_t cell) const {
  const int64_t cols = memory_.program.cols_of(Buffer::residual);
  demand(cell >= 0 && cell * kBandRows < cols, "a residual beyond its columns");
  demand(!residual_.empty(), "a residual that no prologue has made");
  return residual_.data() + row * cols + cell * kBandRows;
}

// The embedding and its norm.
void WalkRows::embed(const Phase& phase) {
  const Program& program = memory_.program;
  residual_.resize(static_cast<size_t>(memory_.rows * cols_));
  for (const Operation& operation : prologue_of(phase, program))
    for (int row = 0; row < memory_.rows; ++row) {
      float* residual = residual_.data() + row * cols_;
      float* x = x_.data() + row * cols_;
      if (operation.kind == OperationKind::embed) {
        memory_.weights.embedding_row(memory_.input.step->tokens[static_cast<size_t>(row)], residual);
        for (int64_t i = 0; i < cols_; ++i) x[i] = residual[i] *= operation.scale;
      } else {
        demand(operation.kind == OperationKind::norm, "a prologue that the walk does not have");
        norm_row(residual, memory_.weights.vector(operation.weights[0].role, operation.layer).data(), cols_,
                 program.norm_eps, x);
      }
    }
}

// What the phase before has left.
void WalkRows::gather(const Phase& before) {
  const int64_t dim = memory_.program.head_dim;
  for (int row = 0; row < memory_.rows; ++row)
    for (int64_t i = 0; i < cols_; ++i) {
      const int64_t index =
          before.merges() ? i / dim * memory_.partition.head_cells() + i % dim / kBandRows : i / kBandRows;
      const int64_t at = before.merges() ? i % dim % kBandRows : i % kBandRows;
      x_[static_cast<size_t>(row * cols_ + i)] = cell(before.writes, index)[row * kBandRows + at];
    }
}

void WalkRows::prologue(Range columns) {
  const Phase& phase = memory_.phase(phase_);
  demand(phase.multiplies(), "a prologue of attention, which has one an item, or of no product");
  cols_ = memory_.partition.matrix_of(phase).tiles.cols;
  x_.assign(static_cast<size_t>(memory_.rows * cols_), kPoison);
  if (phase.embeds()) {
    embed(phase);
  } else {
    gather(*memory_.partition.phases.before(phase_));
    for (int row = 0; phase.is_normed && row < memory_.rows; ++row)
      factors_[static_cast<size_t>(row)] = norm_factor(Shared::normed, row);
  }
  demand(columns.begin >= 0 && columns.begin <= columns.end && columns.end <= cols_, "columns that x does not have");
  if (!memory_.poisons) return;
  for (int row = 0; row < memory_.rows; ++row) {
    std::fill_n(x_.begin() + row * cols_, columns.begin, kPoison);
    std::fill_n(x_.begin() + row * cols_ + columns.end, cols_ - columns.end, kPoison);
  }
}

std::vector<float> WalkRows::head_of(Buffer buffer, int row, int64_t head) const {
  const Program& program = memory_.program;
  const Phase& phase = memory_.phase(phase_);
  const Phase& before = *memory_.partition.phases.before(phase_);
  const MatrixPartition& matrix = memory_.partition.matrix_of(before);
  const int64_t dim = program.head_dim;
  int64_t first = head * dim;  // column of the product
  for (const Buffer written : main_of(before, program).writes) {
    if (written == buffer) break;
    first += program.cols_of(written);
  }
  std::vector<float> values(static_cast<size_t>(dim));
  for (int64_t i = 0; i < dim; ++i) values[static_cast<size_t>(i)] = sum_of(matrix, before.writes, row, first + i);
  for (const Operation& operation : prologue_of(phase, program)) {
    const auto at = std::ranges::find(operation.writes, buffer) - operation.writes.begin();
    if (at == static_cast<std::ptrdiff_t>(operation.writes.size())) continue;
    if (operation.kind == OperationKind::add_bias) {
      const std::vector<float>& bias = memory_.weights.vector(operation.weights[0].role, operation.layer);
      for (int64_t i = 0; i < dim; ++i) values[static_cast<size_t>(i)] += bias[static_cast<size_t>(first + i)];
    } else if (operation.kind == OperationKind::norm_heads) {
      const Weight& weight = operation.weights[static_cast<size_t>(at)];
      norm_row(values.data(), memory_.weights.vector(weight.role, operation.layer).data(), dim, program.norm_eps,
               values.data());
    } else if (operation.kind == OperationKind::rotate) {
      rotate_head(memory_.input.ropes[static_cast<size_t>(operation.rope)], row, values.data());
    }
  }
  return values;
}

}  // namespace weft::decode::fused
