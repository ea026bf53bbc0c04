// Which SpMM or SDDMM a call runs.
#pragma once

#include "sparse/operators/ready.h"
#include "sparse/tune/choice.h"
#include "weft/sparse.h"

namespace weft::sparse {

// Of "auto": what a search has found for the structure, in this process or kept in the cache; on a card, else the last
// one for a structure of the same likeness; else the likely one.
// Asked once for each structure object.
FormatChoice choice_of(const Structure::Data& structure, const GatherCall& call);
// How many elements ahead such a call fetches rows where it runs in CSR, as part of something larger.
int64_t prefetch_of(const Structure::Data& structure, const GatherCall& call);
// What a search has found, for calls from now on.
void keep_choice(const Structure::Data& structure, const GatherCall& call, const FormatChoice& choice);
ReadyProgram gather_program(GatherOperator op, const FormatChoice& choice, int64_t feat, DType dtype, Device device);
// Compiled by the first who asks.
const Operator& gather_operator(GatherOperator op, const FormatChoice& choice, int64_t feat, DType dtype,
                                Device device = {});

}  // namespace weft::sparse
