// Pictures of sparse programs.
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::cli {

// The matrix with a dot for each element, coloured by the format that takes it, beside the loop nest of stage II; the
// nest alone without structures. Throws Error(unsupported) for a structure that is no matrix in CSR.
std::string sparse_svg(const sparse::Operator& op, const std::map<std::string, sparse::Structure>& structures);

}  // namespace weft::cli
