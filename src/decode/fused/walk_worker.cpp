#include "decode/fused/walk_worker.h"

#include <algorithm>
#include <cmath>

namespace weft::decode::fused {

void WalkWorker::reset() {
  next_ = 0;
  phase_ = -1;
  sums_.assign(static_cast<size_t>(memory_.rows * kBandRows), 0.f);
  ring_.reset();
  rows_.reset();
  reduce_.reset();
}

std::atomic<int>& WalkWorker::counter(int id) const {
  demand(id >= 0 && id < static_cast<int>(memory_.counters.size()), "a counter that is not there");
  return memory_.counters[static_cast<size_t>(id)];
}

bool WalkWorker::can_step() const {
  if (next_ == own_.steps.size()) return false;
  const WorkerStep& step = own_.steps[next_];
  if (step.kind == StepKind::wait) return counter(step.id).load(std::memory_order_acquire) >= step.count;
  if (step.kind == StepKind::read && memory_.is_tagged())
    return memory_.holds(step.buffer, step.begin, step.end, step.id);
  return step.kind != StepKind::await || ring_.has_landed(step.id);
}

void WalkWorker::step() {
  const WorkerStep& step = own_.steps[next_++];
  if (step.phase != phase_ || phase_ < 0) begin_phase(step.phase);
  switch (step.kind) {
    case StepKind::wait:
    case StepKind::await: return;  // can_step has seen it
    case StepKind::read: return rows_.read(step);
    case StepKind::prologue: return rows_.prologue({step.begin, step.end});
    case StepKind::keep: return reduce_.keep(step);
    case StepKind::reduce: return reduce_.reduce(step);
    case StepKind::append: return attention_.append(step);
    case StepKind::multiply: return multiply(step);
    case StepKind::write_sums: return write_sums(step);
    case StepKind::start: return attention_.start(step);
    case StepKind::attend: return attention_.attend(step, ring_);
    case StepKind::attend_own: return attention_.attend_own(step);
    case StepKind::write_states: return attention_.write_states(step);
    case StepKind::merge: return rows_.merge(step);
    case StepKind::release: return ring_.release(step.id);
    case StepKind::arrive: counter(step.id).fetch_add(1, std::memory_order_acq_rel); return;
  }
}

void WalkWorker::begin_phase(int phase) {
  demand(phase >= 0 && phase < memory_.schedule.num_phases, "a step of a phase that is not there");
  phase_ = phase;
  rows_.begin_phase(phase);
  reduce_.begin_phase(phase);
  attention_.begin_phase(phase);
}

void WalkWorker::multiply(const WorkerStep& step) {
  const Phase& phase = memory_.phase(phase_);
  const Load& load = ring_.at(step.id);
  demand(phase.multiplies() && load.phase == phase_, "a product of another phase's load");
  const TiledMatrix& tiles = memory_.partition.matrix_of(phase).tiles;
  demand(step.begin >= 0 && step.begin >= load.begin && step.begin < step.end && step.end <= load.end &&
             step.end <= tiles.num_tiles() && step.begin / tiles.strip_tiles() == (step.end - 1) / tiles.strip_tiles(),
         "tiles that their load does not have, or of several bands");
  demand(!rows_.x().empty(), "a product before the prologue");
  const int64_t band = tiles.band_of(step.begin);
  const TiledMatrix::Part& part = tiles.part_of_band(band);
  std::vector<float> wide(static_cast<size_t>(tiles.tile_cols));
  for (int64_t tile = step.begin; tile < step.end; ++tile) {
    const int64_t at = tiles.byte_of(tile) - tiles.byte_of(std::max<int64_t>(load.begin, 0)),
                  first = tiles.in_band(tile) * tiles.tile_cols;
    demand(at + part.tile_bytes <= load.bytes, "tiles beyond their load");
    const int64_t cols = std::min(tiles.tile_cols, tiles.cols - first);
    for (int64_t i = 0; i < tiles.rows_of(band); ++i) {
      const int64_t row_bytes = part.tile_bytes / kBandRows;
      widen(part.type, ring_.data(load, at + i * row_bytes, row_bytes), tiles.tile_cols, wide.data());
      for (int row = 0; row < memory_.rows; ++row)
        sums_[static_cast<size_t>(row * kBandRows + i)] +=
            dot(rows_.x().data() + row * rows_.cols() + first, wide.data(), cols);
    }
  }
}

void WalkWorker::write_sums(const WorkerStep& step) {
  demand(step.buffer <= Shared::logits && step.begin >= 0 && step.begin < memory_.num_cells(step.buffer),
         "sums beyond their buffer");
  for (int row = 0; row < memory_.rows; ++row)
    for (int64_t i = 0; i < kBandRows; ++i) sums_[static_cast<size_t>(row * kBandRows + i)] *= rows_.factor(row);
  for (const Operation& operation : epilogue_of(memory_.phase(phase_), memory_.program)) {
    if (operation.kind != OperationKind::soft_cap) continue;
    for (float& sum : sums_) sum = operation.soft_cap * std::tanh(sum / operation.soft_cap);
  }
  std::ranges::copy(sums_, memory_.cell(step.buffer, step.begin));
  memory_.publish(step.buffer, step.begin, phase_);
  std::ranges::fill(sums_, 0.f);
}

}  // namespace weft::decode::fused
