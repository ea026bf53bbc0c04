// Within loops that are bound to threads nobody waits for another one, and within a kernel no CTA does: there an
// element is accessed by one of them, or only read.
//
//   for k in range(8) [bind=threadIdx.x]:
//     for j in range(8): Y[k, j] = 0.0                                   // refused: the first thread along y clears
//     for j in range(8) [bind=threadIdx.y]: Y[k, j] = Y[k, j] + X[j]     // what others add to
//
// bind() asks of a loop whether its iterations access elements of their own while those around it stand still. Here is
// asked what the loops of a nest, once the schedule is done, do together.
#pragma once

#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// Throws Error(unsupported) that names element, loop and line. Elements of buffers alone: of memory of its own
// loop/threads.h says what is refused.
void check_bound_loops(Stage2 stage);

}  // namespace weft::sparse
