// Matrices from files: Matrix Market (.mtx), .smtx (a line of sizes, one of indptr, one of indices), triples (.csv with
// relation, row, column: all relations together), each also compressed (.gz).
//
//   const sparse::Coo coo = read_matrix("cora.mtx.gz");
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::cli {

// Throws Error(io_error), Error(invalid_file) naming the line, or Error(unsupported) where zlib is missing.
sparse::Coo read_matrix(const std::string& path);
// A whole file, unpacked.
std::string read_packed_file(const std::string& path);

}  // namespace weft::cli
