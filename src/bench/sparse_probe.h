// What sparse rows are held against, over the same matrix: readings are operations a second, two for each element and
// feature.
#pragma once

#include "bench/probe.h"
#include "bench/sparse_cases.h"

namespace weft::bench {

// Loads the rows of y [cols, feat] that the matrix gathers, in order and nothing else, fetched ahead as far as is best.
Probe probe_gather(WorkerTeam& team, const SparseCase& a, const float* y, int64_t feat);
// Nested loops over CSR as the compiler makes them; every worker has an equal share of the elements. c = a y, and
// out[p] = values[p] * dot(x[i], y[j]).
Probe probe_plain_spmm(WorkerTeam& team, const SparseCase& a, const float* y, float* c, int64_t feat);
Probe probe_plain_sddmm(WorkerTeam& team, const SparseCase& a, const float* x, const float* y, float* out,
                        int64_t feat);

}  // namespace weft::bench
