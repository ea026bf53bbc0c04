// `weft sparse --structure AXIS=FILE`: the structure of an axis without values: places of a list, or the axis' arrays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sparse/argument_names.h"
#include "sparse/stage1/program.h"
#include "weft/sparse_files.h"

namespace weft::cli {

// Arrays of one axis, as the program declares them.
struct AxisArrays {
  std::string given;                  // "--structure J=indptr.npy,indices.npy"
  std::vector<sparse::Array> arrays;  // of a variable axis indptr, then of a sparse one indices
};

// Whether the files of an option are arrays of one axis; otherwise it is a list of elements, as of --matrix.
bool is_of_arrays(const std::string& files);
// Reads them: FILE.npy, or INDPTR.npy,INDICES.npy of a sparse_variable axis. Throws Error(invalid_argument) for an axis
// without arrays, for more or fewer files than it has, and for arrays that are not of int32 or int64; and what readers
// throw.
AxisArrays read_axis_arrays(const sparse::Stage1& program, const std::string& axis, const std::string& files);

// The structures of those axes, by the last axis of each chain. Lengths that `arguments` or --set (`scalars`) do not
// tell follow from the arrays, but for that of a sparse axis. Throws UsageError for one that is missing, or an axis of
// the chain without arrays, and what structure_of throws.
std::map<std::string, sparse::Structure> structures_of_arrays(const sparse::Stage1& program,
                                                              const std::map<std::string, AxisArrays>& by_axis,
                                                              const std::map<std::string, int64_t>& scalars,
                                                              const sparse::RunArguments& arguments,
                                                              const sparse::ArgumentNames& names);

}  // namespace weft::cli
