// Ready operators, compiled once a process for each schedule.
#pragma once

#include <string>

#include "weft/sparse.h"

namespace weft::sparse {

// The operator of this program and schedule with these parameters fixed; compiled by the first who asks.
Operator kept_operator(const std::string& program, const std::string& schedule,
                       const std::map<std::string, int64_t>& set);

// Lanes of fp32 in a vector, and vectors in registers.
struct VectorUnit {
  int64_t lanes = 16, registers = 32;
};
VectorUnit vector_unit(Isa isa);
// A row of `feat` features in vectors: `lanes` of each, 1 where there is no vector of them; how many of a row are kept in
// registers at once.
struct RowTiles {
  int64_t lanes = 1, vectors = 1;
};
RowTiles row_tiles(int64_t feat, const VectorUnit& unit);

// How many elements ahead gathered rows of fp32 are best fetched.
int64_t default_prefetch(int64_t feat);

extern const char* const kSpmmProgram;
extern const char* const kSddmmProgram;
// How each runs fastest for rows of `feat` features; of a format, which is "" for the program's own. `prefetch`: how many
// elements ahead gathered rows are fetched; 0: not.
std::string spmm_schedule(int64_t feat, const std::string& format, const VectorUnit& unit, int64_t prefetch);
std::string sddmm_schedule(int64_t feat, const VectorUnit& unit, int64_t prefetch);

}  // namespace weft::sparse
