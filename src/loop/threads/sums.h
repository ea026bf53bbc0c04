// A reduction over threads: each adds up its own iterations in a register, then all of them together.
//
//   for k in range(8) [reduce, bind=threadIdx.x]:     allocate weft_sum_0[1]: fp32 in register
//     A[i] = A[i] + B[k]                              weft_sum_0[0] = 0.0
//                                                     for k in range(8) [bind=threadIdx.x]:
//                                                       weft_sum_0[0] = weft_sum_0[0] + B[k]
//                                                     weft_sum_0[0] = its sum over the cta
//                                                     A[i] = A[i] + weft_sum_0[0]
//
// The target is accessed where the loop would: the conditions around the store within it stand around the last line, or
// the threads ask together whether any of them came there, in weft_any_0.
#pragma once

#include <string>

#include "loop/threads/surroundings.h"

namespace weft::loop {

struct ThreadSum {
  Body begin;     // a thread's own memory, and what changes nothing in it
  Stmt loop;      // adds to that
  Body together;  // over all threads, in each of them
  Stmt end;       // adds it to the target
  bool is_over_cta() const { return together[0].thread == "cta"; }
};
// Throws Error(unsupported) where the loop, a reduction bound to threads, is not one sum, max or min at one place.
ThreadSum thread_sum_of(const Kernel& kernel, Surroundings& around, Stmt loop, int number);

// Where warps of a CTA exchange their sums.
Stmt memory_of_cta_sums(const Kernel& kernel);

}  // namespace weft::loop
