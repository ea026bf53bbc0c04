// Every ready operator as a program with its schedule, and structures that it takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {

struct ReadyCase {
  std::string name = {};
  ReadyProgram ready = {};
  std::string axis = {};                                     // that its structure is of
  std::function<Structure(const Matrix& a)> structure = {};  // from the places of a matrix
  std::map<std::string, int64_t> scalars = {};               // what no structure tells
  std::map<std::string, double> reals = {};
};
std::vector<ReadyCase> ready_cases(const VectorUnit& unit = {});
// Programs whose schedules by tensor cores have more to do than ready_cases(): several tiles, blocks and stages.
std::vector<ReadyCase> mma_cases();
// The same, and SpMM and SDDMM in several formats and schedules: what has golden texts.
std::vector<ReadyCase> all_cases();

// Memory for all buffers of a run: random numbers, and for integers 0, 1, 2, ...
struct RunMemory {
  RunMemory(const Operator& op, RunArguments given, uint32_t seed);
  RunArguments arguments = {};
  std::map<std::string, std::vector<char>> bytes = {};
};

}  // namespace weft::sparse::test
