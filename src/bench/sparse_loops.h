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
};

struct SparseLoops {
  // Loads row indices[p] of `rows`, p from indptr[begin] to indptr[end], prefetching `ahead` elements ahead.
  void (*gather)(const CsrRows& a, const float* rows, long long feat, long long ahead);
  // c = a b, and out[p] = values[p] * dot(x[i], y[j]), as nested loops.
  void (*spmm)(const CsrRows& a, const float* b, float* c, long long feat);
  void (*sddmm)(const CsrRows& a, const float* x, const float* y, float* out, long long feat);
};

WEFT_DECLARE_PER_ISA(const SparseLoops kSparseLoops)

}  // namespace weft::bench
