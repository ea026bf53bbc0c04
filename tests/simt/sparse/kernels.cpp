// CUDA text of sparse operators as it is generated: tests/sparse holds the golden texts to be just that.
// The order matters.
// clang-format off
#include "tests/simt/sparse/cuda.h"
#include "tests/golden/sparse/prelude.cuda.txt"
#include "tests/golden/sparse/block_spmm.cuda.txt"
#include "tests/golden/sparse/fused_mm.cuda.txt"
#include "tests/golden/sparse/graph_attention.cuda.txt"
#include "tests/golden/sparse/rgms.cuda.txt"
#include "tests/golden/sparse/sddmm.cuda.txt"
#define weft_spmm_0 weft_spmm_csr
#include "tests/golden/sparse/spmm_csr.cuda.txt"
#undef weft_spmm_0
#define weft_spmm_0 weft_spmm_bound
#include "tests/golden/sparse/spmm_bound.cuda.txt"
