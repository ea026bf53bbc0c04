// What the workers of a walk share, and where its parts lie.
#pragma once

#include <array>
#include <atomic>
#include <limits>
#include <vector>

#include "base/check.h"
#include "decode/fused/walk.h"

namespace weft::decode::fused {

inline constexpr int kNoPhase = std::numeric_limits<int>::min();
inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

inline void demand(bool ok, const char* what) {
  if (!ok) throw WalkFault(what);
}

// The same sums for a row of x whatever stands beside it.
inline float dot(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) lanes[i % kLanes] += a[i] * b[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// A key or a value in the cache.
void widen_cached(DType dtype, const char* from, int64_t count, float* to);
void narrow_cached(DType dtype, const float* from, int64_t count, char* to);

struct Walk::Memory {
  Memory(const Partition& p, const WalkWeights& w, const Schedule& s, const WalkInput& i)
      : partition(p),
        program(p.program),
        weights(w),
        schedule(s),
        input(i),
        rows(static_cast<int>(i.step->rows())),
        counters(static_cast<size_t>(s.num_counters)) {}

  const Partition& partition;
  const Program& program;
  const WalkWeights& weights;
  const Schedule& schedule;
  const WalkInput& input;
  const int rows;
  bool poisons = false;
  // Cells of each buffer: of states [head_dim + 2], of squares [rows], of `normed` [rows, 16] and squares [rows], of
  // others [rows, 16].
  std::array<std::vector<float>, kNumShared> shared;
  std::vector<std::atomic<int>> counters;
  // With tagged edges: the phase that has written each cell.
  std::array<std::vector<std::atomic<int>>, kNumShared> tags;

  const Phase& phase(int index) const { return partition.phases.all[static_cast<size_t>(index)]; }
  int group() const { return program.num_qo_heads / program.num_kv_heads; }
  int64_t floats_of_cell(Shared buffer) const {
    switch (buffer) {
      case Shared::states: return program.head_dim + 2;
      case Shared::squares: return rows;
      case Shared::normed: return rows * (kBandRows + 1);
      default: return rows * kBandRows;
    }
  }
  int64_t num_cells(Shared buffer) const {
    return static_cast<int64_t>(shared[static_cast<size_t>(buffer)].size()) / floats_of_cell(buffer);
  }
  bool is_tagged() const { return partition.machine.edge == EdgeForm::tagged; }
  // Whether cells hold what the phase has written; true where they are not there, so that who reads them faults.
  bool holds(Shared buffer, int64_t begin, int64_t end, int phase_index) const {
    const std::vector<std::atomic<int>>& of = tags[static_cast<size_t>(buffer)];
    if (begin < 0 || end > static_cast<int64_t>(of.size())) return true;
    for (int64_t i = begin; i < end; ++i)
      if (of[static_cast<size_t>(i)].load(std::memory_order_acquire) != phase_index) return false;
    return true;
  }
  // The cell is written.
  void publish(Shared buffer, int64_t index, int phase_index) {
    if (is_tagged())
      tags[static_cast<size_t>(buffer)][static_cast<size_t>(index)].store(phase_index, std::memory_order_release);
  }
  float* cell(Shared buffer, int64_t index) {
    return shared[static_cast<size_t>(buffer)].data() + index * floats_of_cell(buffer);
  }
};

}  // namespace weft::decode::fused
