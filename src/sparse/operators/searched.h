// Operators whose schedules a search may have found, by what its results are kept by.
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::sparse {

// What results of a search for such calls are kept by, and how a call runs: as the search found, or as tends to be
// best.
std::string block_spmm_call(int64_t heads, int64_t block, int64_t feat, DType dtype, int64_t workers);
std::string rgms_call(bool has_values, int64_t feat_in, int64_t feat_out, DType dtype, int64_t workers);
Operator block_spmm_operator(int64_t heads, int64_t block, int64_t feat, DType dtype, const std::string& candidate,
                             Device device = {});
// How many edges ahead rows of x are fetched where no search says otherwise; rows of more than
// four lines, which that makes slower, not at all.
int64_t likely_rgms_prefetch(int64_t feat_in, DType dtype);
// With X, W, Y and, if edges have values, A among the buffers.
void run_rgms(const Structure& edges, const RunArguments& arguments, const std::string& candidate, Stream stream);

}  // namespace weft::sparse
