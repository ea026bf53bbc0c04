// What each thread of a GPU runs of a nest whose loops are bound to CTAs and threads.
//
//   Body body = thread_body(function, phase);   // with barriers where threads of a CTA exchange values
//   shared_bytes(body);                         // what a launch has to give a CTA
#pragma once

#include <string>

#include "loop/passes.h"

namespace weft::loop {

// - Statements outside of all loops that are bound to threads are run by every thread of the CTA, alike; what they
//   store for others to see, the first thread stores alone. A loop over threads is run by the first alone along axes
//   that nothing in it is bound to.
// - A barrier stands wherever a thread of the CTA may access what another one wrote, or write what another one
//   accessed, since the last one: in shared memory, and in buffers of the function.
// - A reduction that is bound to threads, a sum, max or min, is made by each in a register, then over the lanes of a
//   warp in pairs; over warps in their order, through shared memory. So it has the same bits in every run of a launch.
// Throws Error(unsupported) where a barrier would have to stand where threads may not come together, where two threads
// would write one element, where memory of a thread is used as if it were the CTA's, and where threads or CTAs would
// repeat what is to be done once. Whoever binds loops answers for buffers of the function within loops over threads:
// sparse/stage2/bound_loops.h does.
Body thread_body(const Function& function, const Phase& phase);
// Of every phase.
Launches split_threads(const Launches& launches);

// Of all allocations in shared memory, each from a multiple of 16 bytes on.
int64_t shared_bytes(const Body& body);

// "threadIdx.x" and so on
bool is_thread_axis(const std::string& axis);
// Whether it is target = target + x, or max or min in place of the sum, of reals: what threads do together.
bool is_combined(const Stmt& store);
// A reduction over threads: none of its sums is atomic.
bool is_thread_sum(const Stmt& stmt);

}  // namespace weft::loop
