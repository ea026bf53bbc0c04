// States of attention for tests of merge_states, and what merging them must give, on any target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/attention/kernels/problem.h"
#include "tests/attention/kernels/target.h"

namespace weft::testing {

// o [n, rows, heads, dim], lse [n, rows, heads]
struct States {
  int n, rows, heads, dim;
  DType dtype;
  std::vector<char> o;
  std::vector<float> lse;
};
States random_states(int n, int rows, int heads, int dim, DType dtype, unsigned seed);

struct Merged {
  std::vector<char> o;  // as in a tensor [rows, heads, dim], NaN before
  std::vector<float> lse;
};
Merged merge_on(const Target& target, States& states, DType out_dtype);
// The states as a list, those of row r from indptr[r] on: [nnz, heads, dim].
Merged merge_list_on(const Target& target, States& list, std::span<const int32_t> indptr, DType out_dtype);

// Merges on a target, as they stand or as a list for each row, and compares with the sum in fp64.
void expect_merged(const Target& target, States& states, DType out_dtype, bool by_indptr);

// Attends two requests, whose first two pages are the same, in two levels and compares with the flat page table in
// fp64. `c`: anything but its lengths, which are set here.
void expect_levels_merge(const Target& target, Case c, double most_error);

// Attends keys in two parts, merges their states, and compares with all keys at once; as a list of 0, 1 and more states
// a row, too.
void expect_parts_merge(const Target& target, int head_dim);

}  // namespace weft::testing
