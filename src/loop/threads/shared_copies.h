// Copies of a buffer's elements to shared memory, which all threads of a CTA make together: in pieces of 16 bytes that
// come behind their backs, where places allow that, else one by one.
//
//   for ii in range(32): for ji in range(32): A_local[ii * 40 + ji] = A[...]      // 128 pieces of 8 elements of bf16
//
// And loops whose copies are made some iterations ahead:
//
//   for jo in range(n) [reduce, stages=3]:          // A_local is three: of this iteration, and of the next two
//     allocate A_local[...]; copies; what reads them
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loop/threads/kernel.h"

namespace weft::loop {

struct SharedCopy {
  std::vector<const Stmt*> loops = {};  // outermost first
  const Stmt* store = nullptr;          // of a load
  Expr source = {};
  Expr condition = {};  // where it fails, the memory becomes 0; none: it is always copied
};
// None where it is anything else, or copies what the kernel writes.
std::optional<SharedCopy> shared_copy(const Kernel& kernel, const Stmt& nest);
// What each thread does of it. `number` makes its names its own.
Body copied_together(const Kernel& kernel, const SharedCopy& copy, int number);

// Loops with stages declare their memory around themselves: where they stand side by side, as a tail beside the others,
// each has names of its own.
Body with_stages_apart(const Function& function, Body body);

// A loop in stages, taken apart.
struct StagedLoop {
  std::vector<const Stmt*> memory = {}, copies = {};
  Body rest = {};  // everything else
};
// Throws Error(unsupported) where nothing in it can be copied ahead.
StagedLoop staged_loop(const Kernel& kernel, const Stmt& loop);
// A place that copies of a loop in stages load, I[j] of B[I[j] + k], the same for all that an iteration copies: memory
// of the thread has that of the next copy, or of all of them.
struct StagedPlace {
  Expr load = {};
  std::string name = {};
  DType dtype = DType::int32;
  bool is_fixed = false;  // the same in every iteration
  Expr condition = {};    // where it fails, nobody reads the place, and it may lie outside; none: it is always loaded
};
// Those that are fixed first. `is_inside` tells of a load in an iteration whether it is proven to lie in its buffer.
std::vector<StagedPlace> staged_places(const Kernel& kernel, const Stmt& loop, const std::vector<const Stmt*>& copies,
                                       int number, const std::function<bool(const Expr& load)>& is_inside);
// What the place becomes.
Expr loaded(const StagedPlace& place);
// The statements, which read at these places as they were loaded.
void read_at_places(Body& body, const std::vector<StagedPlace>& places);
// The statements where memory is that of a stage: each buffer of memory is as many, one behind the other.
Body at_stage(Body body, const std::vector<const Stmt*>& memory, const Expr& stage);

}  // namespace weft::loop
