// `weft sparse --run`: gives a compiled program its tensors, runs it, writes and reports what it computed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/sparse_matrix.h"
#include "cli/sparse_structure.h"

namespace weft::cli {

struct SparseRun {
  std::vector<MatrixOption> matrices = {};
  std::map<std::string, AxisArrays> arrays = {};    // by axis
  std::map<std::string, int64_t> set = {};          // parameters that are fixed
  std::map<std::string, std::string> inputs = {};   // file by buffer
  std::map<std::string, std::string> outputs = {};  // file by buffer; "": of the only one that is written
  bool check = false;
  Device device = {};
  uint64_t seed = 0;
  double compile_ms = 0;
};

// What can be said before anything is compiled: throws for files of buffers that the program has not, of names that are
// no format, in folders that are not there; then names the buffer of an output that is not named.
void check_run(SparseRun& run, const sparse::Stage1& program);
void run_sparse(const SparseRun& run, const sparse::Stage1& program, const sparse::Operator& op,
                const Context& context);

}  // namespace weft::cli
