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

float gate_of(Gate gate, float x) {
  if (gate == Gate::silu) return x / (1.f + std::exp(-x));
  constexpr float kFactor = 0.7978845608f;  // sqrt(2 / pi)
  return 0.5f * x * (1.f + std::tanh(kFactor * (x + 0.044715f * x * x * x)));
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
  kept_.clear();
  begin_phase(-1);
}

void WalkRows::begin_phase(int phase) {
  phase_ = phase;
  x_.clear();
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

void WalkRows::write_residual(const WorkerStep& step) const {
  const Phase& phase = memory_.phase(phase_);
  const int64_t cols = memory_.program.cols_of(Buffer::residual);
  demand(step.buffer <= Shared::residual_1 && step.begin >= 0 && step.begin <= step.end &&
             step.end <= memory_.num_cells(step.buffer),
         "a residual beyond its buffer");
  demand(phase.makes_residual(), "a residual that the phase does not make");
  const Rows residual = std::move(run_prologue(phase, true)[static_cast<size_t>(Buffer::residual)]);
  for (int64_t cell = step.begin; cell < step.end; ++cell) {
    for (int row = 0; row < memory_.rows; ++row)
      for (int64_t i = 0; i < kBandRows && cell * kBandRows + i < cols; ++i)
        memory_.cell(step.buffer, cell)[row * kBandRows + i] =
            residual[static_cast<size_t>(row * cols + cell * kBandRows + i)];
    memory_.publish(step.buffer, cell, phase_);
  }
}

const float* WalkRows::cell(Shared buffer, int64_t index) const {
  return inbox_[static_cast<size_t>(buffer)].data() + index * memory_.floats_of_cell(buffer);
}

// A column of a product: its band's pieces in the order of panels and of slots.
float WalkRows::sum_of(const MatrixPartition& matrix, Shared buffer, int row, int64_t column) const {
  const int64_t band = matrix.tiles.band_of_row(column), in_band = column - matrix.tiles.first_row_of(band);
  float sum = 0;
  matrix.each_slot(band, [&](int slot) { sum += cell(buffer, slot)[row * kBandRows + in_band]; });
  return sum;
}

void WalkRows::gather_sums(const Phase& before, Buffers& buffers) const {
  const MatrixPartition& matrix = memory_.partition.matrix_of(before);
  int64_t first = 0;
  for (const Buffer buffer : main_of(before, memory_.program).writes) {
    const int64_t cols = memory_.program.cols_of(buffer);
    Rows& rows = buffers[static_cast<size_t>(buffer)];
    rows.resize(static_cast<size_t>(memory_.rows * cols));
    for (int row = 0; row < memory_.rows; ++row)
      for (int64_t i = 0; i < cols; ++i)
        rows[static_cast<size_t>(row * cols + i)] = sum_of(matrix, before.writes, row, first + i);
    first += cols;
  }
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

void WalkRows::gather_attended(Rows& attended) const {
  const int64_t dim = memory_.program.head_dim, cells = memory_.partition.head_cells();
  attended.clear();
  for (int row = 0; row < memory_.rows; ++row)
    for (int64_t head = 0; head < memory_.program.num_qo_heads; ++head)
      for (int64_t d = 0; d < dim; ++d)
        attended.push_back(cell(Shared::attended, head * cells + d / kBandRows)[row * kBandRows + d % kBandRows]);
}

void WalkRows::gather_residual(const Phase& phase, Rows& residual) const {
  if (memory_.schedule.keeps_residual) {
    demand(!kept_.empty(), "a residual that the worker does not have");
    residual = kept_;
    return;
  }
  const int64_t cols = memory_.program.cols_of(Buffer::residual);
  residual.resize(static_cast<size_t>(memory_.rows * cols));
  for (int row = 0; row < memory_.rows; ++row)
    for (int64_t i = 0; i < cols; ++i)
      residual[static_cast<size_t>(row * cols + i)] =
          cell(phase.residual_from, i / kBandRows)[row * kBandRows + i % kBandRows];
}

void WalkRows::run_operation(const Operation& operation, Buffers& buffers) const {
  const Program& program = memory_.program;
  const auto rows_of = [&](Buffer buffer) -> Rows& { return buffers[static_cast<size_t>(buffer)]; };
  const auto weight = [&](size_t i) -> const std::vector<float>& {
    return memory_.weights.vector(operation.weights[i].role, operation.layer);
  };
  const int64_t cols = program.cols_of(operation.writes[0]);
  Rows& to = rows_of(operation.writes[0]);
  to.resize(static_cast<size_t>(memory_.rows * cols));
  for (int row = 0; row < memory_.rows; ++row) {
    float* y = to.data() + row * cols;
    const auto from = [&](size_t i) { return rows_of(operation.reads[i]).data() + row * cols; };
    switch (operation.kind) {
      case OperationKind::embed:
        memory_.weights.embedding_row(memory_.input.step->tokens[static_cast<size_t>(row)], y);
        for (int64_t i = 0; i < cols; ++i) y[i] *= operation.scale;
        break;
      case OperationKind::norm: norm_row(from(0), weight(0).data(), cols, program.norm_eps, y); break;
      case OperationKind::add_bias:
        for (int64_t i = 0; i < cols; ++i) y[i] += weight(0)[static_cast<size_t>(i)];
        break;
      case OperationKind::add: {
        const float *a = from(0), *b = from(1);
        for (int64_t i = 0; i < cols; ++i) y[i] = a[i] + b[i];
        break;
      }
      case OperationKind::gate: {
        const float *gate = from(0), *up = from(1);
        for (int64_t i = 0; i < cols; ++i) y[i] = gate_of(operation.gate, gate[i]) * up[i];
        break;
      }
      default: demand(false, "a prologue that the walk does not have");
    }
  }
}

WalkRows::Buffers WalkRows::run_prologue(const Phase& phase, bool ends_with_residual) const {
  Buffers buffers;
  if (const Phase* before = memory_.partition.phases.before(phase_)) {
    if (before->merges())
      gather_attended(buffers[static_cast<size_t>(Buffer::attended)]);
    else
      gather_sums(*before, buffers);
  }
  if (phase.makes_residual() && !phase.embeds()) gather_residual(phase, buffers[static_cast<size_t>(Buffer::residual)]);
  for (const Operation& operation : prologue_of(phase, memory_.program)) {
    run_operation(operation, buffers);
    if (ends_with_residual && operation.writes[0] == Buffer::residual) break;
  }
  return buffers;
}

void WalkRows::prologue(Range columns) {
  const Phase& phase = memory_.phase(phase_);
  demand(phase.multiplies(), "a prologue of attention, which has one an item, or of a merge");
  Buffers buffers = run_prologue(phase, false);
  if (phase.makes_residual()) kept_ = std::move(buffers[static_cast<size_t>(Buffer::residual)]);
  const Buffer input = main_of(phase, memory_.program).reads[0];
  x_ = std::move(buffers[static_cast<size_t>(input)]);
  cols_ = memory_.program.cols_of(input);
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
