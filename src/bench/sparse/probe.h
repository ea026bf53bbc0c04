// What sparse rows are held against, over the same matrix: readings are operations a second, two for each element and
// feature.
#pragma once

#include "bench/probe.h"
#include "bench/sparse/cases.h"

namespace weft::bench {

// Loads the rows of y [cols, feat] that the matrix gathers, and nothing else. A reading is the best of the fastest of
// several loops: whole rows or tiles of their features, for all rows or row by row, fetched ahead from not at all to as
// far as any schedule does.
Probe probe_gather(WorkerTeam& team, const SparseCase& a, const float* y, int64_t feat);
// Nested loops over CSR as the compiler makes them; every worker has an equal share of the elements. c = a y, and
// out[p] = values[p] * dot(x[i], y[j]).
Probe probe_plain_spmm(WorkerTeam& team, const SparseCase& a, const float* y, float* c, int64_t feat);
Probe probe_plain_sddmm(WorkerTeam& team, const SparseCase& a, const float* x, const float* y, float* out,
                        int64_t feat);

}  // namespace weft::bench
