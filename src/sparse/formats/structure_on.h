// A matrix in the format that a program's axes say.
//
//   Converted blocks = converted_on(program, "JO", coo);   // A(IO, JO, II, JI), II and JI of 4: BSR in blocks of 4
#pragma once

#include <string>

#include "sparse/stage1/program.h"
#include "weft/sparse.h"

namespace weft::sparse {

// CSR, ELL, BSR, DCSR, DBSR, SR-BCRS or rows of any length, by the axes from the root to `axis`, and those of literal
// length that follow in a buffer. Throws Error(unsupported) for axes of another form, and Error(invalid_argument) for a
// row that is longer than a literal width.
Converted converted_on(const Declarations& program, const std::string& axis, const Coo& coo);
inline Structure structure_on(const Declarations& program, const std::string& axis, const Coo& coo) {
  return converted_on(program, axis, coo).structure;
}

// Row and column of each position of a structure whose axes are those of a matrix, may be below a root of one; of
// padding the column is -1. Throws Error(unsupported) for a structure of another form.
Coo coordinates_at(const Structure& structure);

}  // namespace weft::sparse
