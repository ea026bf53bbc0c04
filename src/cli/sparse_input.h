// Structures from files: Matrix Market (.mtx), .smtx (a line of sizes, one of indptr, one of indices), triples (.csv
// with relation, row, column), FROSTT tensors (.tns: coordinates from 1 on, then the value), each also compressed
// (.gz).
//
//   const sparse::Coo coo = read_matrix("cora.mtx.gz");
//   const sparse::CooTensor tensor = read_tensor("facts.tns.gz");
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::cli {

// Throws Error(io_error), Error(invalid_file) naming the line, or Error(unsupported) where zlib is missing.
sparse::Coo read_matrix(const std::string& path);  // of triples all relations together; of .tns two dimensions
bool is_tensor(const std::string& path);           // .tns or triples
sparse::CooTensor read_tensor(const std::string& path);

}  // namespace weft::cli
