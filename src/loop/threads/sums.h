// A reduction over threads: each adds up its own iterations in a register, then all of them together.
//
//   for k in range(8) [reduce, bind=threadIdx.x]:     allocate weft_sum_0[1]: fp32 in register
//     A[i] = A[i] + B[k]                              weft_sum_0[0] = 0.0
//                                                     for k in range(8) [bind=threadIdx.x]:
//                                                       weft_sum_0[0] = weft_sum_0[0] + B[k]
//                                                     weft_sum_0[0] = its sum over the cta
//                                                     A[i] = A[i] + weft_sum_0[0]
//
// Spatial loops within, whose extents are literals, have a sum for each of their iterations:
//
//   for k in range(8) [reduce, bind=threadIdx.x]:     allocate weft_sum_0[4]: fp32 in register
//     for e in range(4) [unroll]:                     ...
//       A[e] = A[e] + B[e * 8 + k]                    for e in range(4) [unroll]:
//                                                       weft_sum_0[e] = its sum over the warp
//                                                     for e in range(4) [unroll]:
//                                                       A[e] = A[e] + weft_sum_0[e]
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
  bool is_over_cta = false;
};
// Throws Error(unsupported) where the loop, a reduction bound to threads, is not one sum, max or min at one place, or
// at places that spatial loops within tell.
ThreadSum thread_sum_of(const Kernel& kernel, Surroundings& around, Stmt loop, int number);

// Sums over lanes to which all lanes of a warp come together, where a launch has the phase's threads: nothing around
// them is asked or repeated by some threads alone.
Names sums_of_whole_warps(const Function& function, const Phase& phase);

// Where warps of a CTA exchange their sums.
Stmt memory_of_cta_sums(const Kernel& kernel);

}  // namespace weft::loop
