// Loads of rows at loaded places, several iterations at once, so that they are on their way together: on a card a loop
// with annotate(l, prefetch, 4), whose body stores in vector loops, reads what four iterations gather before the first
// of them computes. Each iteration computes what it did, in the same order. An extent that is loaded is loaded once, so
// that the compiler may have further groups on their way.
//
//   for j in range(p[i]) [prefetch=4]:             let n = p[i]
//     for k in range(4) [vectorize]:               for q in range(n // 4):
//       C[k] = C[k] + A[j] * B[I[j] + k]             for k in range(4) [vectorize]: ahead_0[k] = B[I[q * 4] + k]
//                                                    ...
//                                                    for k in range(4) [vectorize]: C[k] = C[k] + A[q * 4] * ahead_0[k]
//                                                    ...
//                                                  what is left, as long as it is, in the same way
#pragma once

#include "loop/ir.h"

namespace weft::loop {

// Threads of a multiprocessor, of 40 registers each, that a launch of such loops is compiled for: unrolled groups of
// loads take all registers that they get, and few threads with many loads hide less than many with some.
inline constexpr int kThreadsOfLoadsAhead = 1536;

Body with_loads_ahead(const Function& function, const Body& body);
bool has_loads_ahead(const Body& body);

}  // namespace weft::loop
