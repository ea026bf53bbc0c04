// The rows of x that a product multiplies: made by its prologue, then written in every scheme that its sources
// multiply.
#pragma once

#include <array>
#include <atomic>

#include "ops/gemm/packed.h"
#include "ops/gemm/work_queue.h"

namespace weft::gemm {

struct Scratch::Impl {
  // Activations of one scheme.
  struct Activations {
    Workspace data, scales, offsets, real_sums;
  };
  std::array<Activations, kNumSchemes> activations;
  Workspace workers;
  WorkQueue queue;
};

template <class T>
T* at_least(Workspace& workspace, int64_t count) {
  const auto bytes = static_cast<size_t>(count) * sizeof(T);
  if (workspace.bytes() < bytes) {
    workspace = Workspace();
    workspace = Workspace(Device::cpu(), bytes);
  }
  return static_cast<T*>(workspace.data());
}

// Rows of a group of activations, and of the tiles they are multiplied in.
int group_of(const PackedLinear::Impl& w, int64_t m);
// How m rows are multiplied by weights.
Scheme scheme_of(const KernelTable& kernels, const Panels& weights, int64_t m);

class RowMaker {
 public:
  RowMaker(const PackedLinear::Impl& w, const float* x, int64_t m, int64_t ldx, Scratch::Impl& scratch,
           const WorkerTeam& team, const Fusion& fusion);

  const Rows& rows(Scheme scheme) const { return prepared_[static_cast<size_t>(scheme)]; }
  // Before the job that multiplies them: each row by the worker that is likely to read it next.
  void make_all(WorkerTeam& team);
  // Within that job, by each of its workers: rows go to whoever comes first, so that nobody waits for a worker that has
  // not begun. Returns when all are made: true. False where another worker has failed, with whose error the run ends:
  // the rows may still be written then.
  bool make_together();

 private:
  void make(int64_t begin, int64_t end) const;

  const PackedLinear::Impl& w_;
  const float* x_;
  const int64_t m_, ldx_, step_;
  const Fusion& fusion_;
  std::array<Rows, kNumSchemes> prepared_{};
  std::array<bool, kNumSchemes> used_{};
  std::atomic<int64_t> next_{0}, made_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace weft::gemm
