// How a kernel of a program is launched, from its bound loops: any number of CTAs and threads computes the same, so
// these are as many as there are iterations, within what a card takes.
//
//   const BoundGrid bound(function, phase, thread);      // once, when it is loaded
//   cuda::Grid grid = bound.grid(numbers, num_multiprocessors);
#pragma once

#include <array>
#include <vector>

#include "device/cuda/grid.h"
#include "loop/interpret.h"
#include "loop/passes.h"

namespace weft::sparse {

class BoundGrid {
 public:
  // `thread`: what each thread runs of the phase (loop/threads.h).
  BoundGrid(const loop::Function& function, const loop::Phase& phase, const loop::Body& thread);
  // Of a run with these parameters. Throws Error(unsupported) where a fixed launch had more CTAs than a card takes.
  cuda::Grid grid(const loop::Memory& numbers, int num_multiprocessors) const;
  int shared_bytes() const { return shared_bytes_; }
  // Threads along each axis, where they are the same in every run; else zeros.
  std::array<int, 3> fixed_threads() const;

 private:
  // Loops that are bound to an axis, by their extents.
  struct Axis {
    bool is_bound = false;
    bool varies = false;  // an extent that only the kernel knows, as that of a row
    std::vector<loop::Expr> extents = {};
    // The largest; `otherwise` where one varies.
    int64_t extent(const loop::Memory& numbers, int64_t otherwise) const;
  };
  enum { kCtaX, kCtaY, kCtaZ, kThreadX, kThreadY, kThreadZ, kNumAxes };
  void add(const loop::Function& function, Axis& axis, const loop::Expr& extent);
  void add_loops(const loop::Function& function, const loop::Body& body, Axis& ctas_x);
  std::array<int, 3> threads(const loop::Memory& numbers) const;

  std::array<Axis, kNumAxes> axes_ = {};
  std::vector<Axis> beside_ = {};  // blockIdx.x of the nests that stand beside the first one
  Axis parallel_ = {};
  bool has_sums_ = false;       // over threads
  bool has_products_ = false;   // whose elements threads share
  bool has_fragments_ = false;  // sums of all warps of a CTA
  int shared_bytes_ = 0;
};

}  // namespace weft::sparse
