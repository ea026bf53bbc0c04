// Every ready operator and format over any number of features, and the smallest matrices.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/sparse/ready_programs.h"

namespace weft::sparse::test {

// Without rows, without columns, of one of either, and of no element; the last is ragged.
struct Edge {
  const char* name;
  Matrix matrix;
};
std::vector<Edge> edges();

// What spmm and sddmm are run in.
std::span<const char* const> extent_formats();
// All that may run over features of this width, as the operators schedule it.
std::vector<ReadyCase> extent_cases(int64_t feat);

}  // namespace weft::sparse::test
