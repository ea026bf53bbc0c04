// States of attention for tests of merge_states, and what merging them must give, on any target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace weft::testing
