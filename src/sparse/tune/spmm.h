// Which SpMM a call runs.
#pragma once

#include "sparse/tune/choice.h"
#include "weft/sparse.h"

namespace weft::sparse {

// Of "auto": what a search has found for the structure, in this process or kept in the cache; else the likely one.
// Asked once for each structure object.
SpmmChoice choice_of(const Structure::Data& structure, const SpmmCall& call);
// What a search has found, for calls from now on.
void keep_choice(const Structure::Data& structure, const SpmmCall& call, const SpmmChoice& choice);
// Compiled by the first who asks.
const Operator& spmm_operator(const SpmmChoice& choice, int64_t feat, DType dtype);

}  // namespace weft::sparse
