// `weft sparse --matrix AXIS=FILE`: what a file stores, in the format that a program's axes say, with its values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sparse/stage1/program.h"
#include "weft/sparse_files.h"

namespace weft::cli {

struct MatrixOption {
  std::string axis, path;
  std::string given;  // "--matrix J=FILE"
  sparse::Structure structure = {};
  std::vector<int64_t> order = {};  // which of the values stands at each position, as of sparse::Converted
  std::vector<double> values = {};  // none: the file has none, or they are not asked for
};

struct MatrixReading {
  bool sum_duplicates = false;  // elements at one place are one, their sum
  bool places_alone = false;    // without values
  std::string option = "--matrix";
  std::map<std::string, int64_t> set = {};  // parameters that are fixed
  bool is_run = false;                      // with tensors, then
};

// Throws what readers and conversions throw, Error(invalid_argument) for an axis that the program has not, naming the
// line for an element that stands twice, and Error(out_of_memory) for more rows than a run's arrays can have.
MatrixOption read_matrix_option(const sparse::Stage1& program, const std::string& axis, const std::string& path,
                                const MatrixReading& reading);

// The buffer that the values belong to: of those on the axis' chain, and on blocks below it, the one that the program
// reads before it writes it; "" where there is none, or no values. Throws UsageError where there are several; `given`
// have values of their own.
std::string buffer_of_values(const sparse::Stage1& program, const MatrixOption& matrix,
                             const std::vector<std::string>& given);

}  // namespace weft::cli
