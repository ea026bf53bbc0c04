// A matrix in the format that a program's axes say.
//
//   Structure blocks = structure_on(program, "JO", coo);   // A(IO, JO, II, JI), II and JI of 4: BSR in blocks of 4
#pragma once

#include <string>

#include "sparse/stage1/program.h"
#include "weft/sparse.h"

namespace weft::sparse {

// CSR, ELL, BSR, DCSR, DBSR, SR-BCRS or rows of any length, by the axes from the root to `axis`, and those of literal
// length that follow in a buffer. Throws Error(unsupported) for axes of another form, and Error(invalid_argument) for a
// row that is longer than a literal width.
Structure structure_on(const Declarations& program, const std::string& axis, const Coo& coo);

}  // namespace weft::sparse
