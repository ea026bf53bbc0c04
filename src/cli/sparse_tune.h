// `weft sparse FILE --tune`: the searches behind ready operators, over the matrix or the edges of a file.
#pragma once

#include <map>
#include <string>

#include "cli/cli.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::cli {

struct SparseTune {
  std::string file = {};                             // of the program, for messages
  std::map<std::string, std::string> matrices = {};  // by axis
  std::map<std::string, std::string> set = {};       // by parameter
  double seconds = 45;
  Device device = {};           // where the ready operator runs
  bool sum_duplicates = false;  // elements that stand twice are one
};
// Searches for the ready operator that the program is, SpMM, SDDMM or RGMS. Throws Error(unsupported) for another one,
// UsageError where the structure or a width is missing.
void tune_sparse(const SparseTune& tune, const sparse::Program& program, const Context& context);

}  // namespace weft::cli
