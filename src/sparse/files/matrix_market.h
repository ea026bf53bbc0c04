// Matrix Market files of coordinates.
#pragma once

#include "sparse/files/text_reader.h"
#include "weft/sparse_files.h"

namespace weft::sparse {

// `with_values`: false takes the places alone, of complex matrices, too.
MatrixData parse_matrix_market(TextReader& reader, bool with_values);

}  // namespace weft::sparse
