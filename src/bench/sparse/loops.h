// What sparse rows are held against: a loop that only loads the gathered rows, and the loops over CSR that a simple
// compiler emits. One table per instruction set, from kernels/sparse_loops.cpp compiled with its flags.
#pragma once

#include "device/cpu/built_isas.h"

namespace weft::bench {

struct CsrRows {
  const int* indptr;
  const int* indices;
  const float* values;
  long long begin, end;  // rows
  long long nnz;         // of the whole matrix
};

// How gathered rows are loaded.
struct GatherLoop {
  long long width = 0;   // of a tile of features, a multiple of a vector's; a rest of less than a vector is left out
  bool by_rows = false;  // all tiles of one row of the matrix before the next row; else all rows before the next tile
  long long ahead = 0;   // elements that a row is prefetched ahead, also of the next worker; 0: not
};

struct SparseLoops {
  // Loads row indices[p] of `rows`, p from indptr[begin] to indptr[end].
  void (*gather)(const CsrRows& a, const float* rows, long long feat, const GatherLoop& loop);
  // c = a b, and out[p] = values[p] * dot(x[i], y[j]), as nested loops.
  void (*spmm)(const CsrRows& a, const float* b, float* c, long long feat);
  void (*sddmm)(const CsrRows& a, const float* x, const float* y, float* out, long long feat);
};

WEFT_DECLARE_PER_ISA(const SparseLoops kSparseLoops)

}  // namespace weft::bench
