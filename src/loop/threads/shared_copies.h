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

#include <optional>
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

// A loop in stages, taken apart.
struct StagedLoop {
  std::vector<const Stmt*> memory = {}, copies = {};
  Body rest = {};  // everything else
};
// Throws Error(unsupported) where nothing in it can be copied ahead.
StagedLoop staged_loop(const Kernel& kernel, const Stmt& loop);
// The statements where memory is that of a stage: each buffer of memory is as many, one behind the other.
Body at_stage(Body body, const std::vector<const Stmt*>& memory, const Expr& stage);

}  // namespace weft::loop
