// CUDA text of sparse operators as it is generated: tests/sparse holds the golden texts to be just that.
#include "tests/simt/sparse/kernels.h"

#include <cstddef>
#include <utility>

#include "tests/simt/sparse/cuda.h"

// The order matters.
// clang-format off
#define weft_shared_memory weft_shared_memory_of_a_card
#include "tests/golden/sparse/prelude.cuda.txt"
#undef weft_shared_memory
inline unsigned char* weft_shared_memory() { return weft::simt::shared_memory(); }

// Two texts may call their kernels the same: here the text is part of the name.
#define WEFT_JOINED(golden, name) golden##_##name
#define WEFT_OF(golden, name) WEFT_JOINED(golden, name)
#define weft_activations_0 WEFT_OF(WEFT_GOLDEN, activations_0)
#define weft_batched_sddmm_0 WEFT_OF(WEFT_GOLDEN, batched_sddmm_0)
#define weft_batched_spmm_0 WEFT_OF(WEFT_GOLDEN, batched_spmm_0)
#define weft_block_sddmm_0 WEFT_OF(WEFT_GOLDEN, block_sddmm_0)
#define weft_block_sddmm_1 WEFT_OF(WEFT_GOLDEN, block_sddmm_1)
#define weft_block_spmm_0 WEFT_OF(WEFT_GOLDEN, block_spmm_0)
#define weft_compress_0 WEFT_OF(WEFT_GOLDEN, compress_0)
#define weft_compress_1 WEFT_OF(WEFT_GOLDEN, compress_1)
#define weft_dbsr_spmm_0 WEFT_OF(WEFT_GOLDEN, dbsr_spmm_0)
#define weft_dbsr_spmm_1 WEFT_OF(WEFT_GOLDEN, dbsr_spmm_1)
#define weft_edge_dots_0 WEFT_OF(WEFT_GOLDEN, edge_dots_0)
#define weft_extremes_0 WEFT_OF(WEFT_GOLDEN, extremes_0)
#define weft_extremes_1 WEFT_OF(WEFT_GOLDEN, extremes_1)
#define weft_fused_mm_0 WEFT_OF(WEFT_GOLDEN, fused_mm_0)
#define weft_graph_attention_0 WEFT_OF(WEFT_GOLDEN, graph_attention_0)
#define weft_quotients_0 WEFT_OF(WEFT_GOLDEN, quotients_0)
#define weft_rest_0 WEFT_OF(WEFT_GOLDEN, rest_0)
#define weft_rgms_0 WEFT_OF(WEFT_GOLDEN, rgms_0)
#define weft_rgms_1 WEFT_OF(WEFT_GOLDEN, rgms_1)
#define weft_rgms_2 WEFT_OF(WEFT_GOLDEN, rgms_2)
#define weft_rgms_preprocess_0 WEFT_OF(WEFT_GOLDEN, rgms_preprocess_0)
#define weft_rgms_3 WEFT_OF(WEFT_GOLDEN, rgms_3)
#define weft_scaled_0 WEFT_OF(WEFT_GOLDEN, scaled_0)
#define weft_scattered_0 WEFT_OF(WEFT_GOLDEN, scattered_0)
#define weft_scattered_1 WEFT_OF(WEFT_GOLDEN, scattered_1)
#define weft_sddmm_0 WEFT_OF(WEFT_GOLDEN, sddmm_0)
#define weft_sddmm_1 WEFT_OF(WEFT_GOLDEN, sddmm_1)
#define weft_sddmm_preprocess_0 WEFT_OF(WEFT_GOLDEN, sddmm_preprocess_0)
#define weft_spmm_0 WEFT_OF(WEFT_GOLDEN, spmm_0)
#define weft_spmm_1 WEFT_OF(WEFT_GOLDEN, spmm_1)
#define weft_spmm_2 WEFT_OF(WEFT_GOLDEN, spmm_2)
#define weft_spmm_preprocess_0 WEFT_OF(WEFT_GOLDEN, spmm_preprocess_0)
#define weft_sr_bcrs_spmm_0 WEFT_OF(WEFT_GOLDEN, sr_bcrs_spmm_0)
#define weft_transposed_spmm_0 WEFT_OF(WEFT_GOLDEN, transposed_spmm_0)
#define weft_weighted_spmm_0 WEFT_OF(WEFT_GOLDEN, weighted_spmm_0)

#define WEFT_GOLDEN batched_sddmm
#include "tests/golden/sparse/batched_sddmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN batched_spmm
#include "tests/golden/sparse/batched_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_sddmm
#include "tests/golden/sparse/block_sddmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_sddmm_dots
#include "tests/golden/sparse/block_sddmm_dots.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_sddmm_transposed
#include "tests/golden/sparse/block_sddmm_transposed.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_sddmm_widened
#include "tests/golden/sparse/block_sddmm_widened.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_spmm
#include "tests/golden/sparse/block_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_spmm_dots
#include "tests/golden/sparse/block_spmm_dots.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN block_spmm_widened
#include "tests/golden/sparse/block_spmm_widened.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN convolution
#include "tests/golden/sparse/convolution.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN dbsr_spmm
#include "tests/golden/sparse/dbsr_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN dbsr_spmm_widened
#include "tests/golden/sparse/dbsr_spmm_widened.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN edge_dots
#include "tests/golden/sparse/edge_dots.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN fused_mm
#include "tests/golden/sparse/fused_mm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN graph_attention
#include "tests/golden/sparse/graph_attention.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN rgms
#include "tests/golden/sparse/rgms.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN rgms_hyb_tensorized
#include "tests/golden/sparse/rgms_hyb_tensorized.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN scaled_by_ctas
#include "tests/golden/sparse/scaled_by_ctas.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN scattered_copied
#include "tests/golden/sparse/scattered_copied.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm
#include "tests/golden/sparse/sddmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_fused
#include "tests/golden/sparse/sddmm_fused.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_rows
#include "tests/golden/sparse/sddmm_rows.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_bound
#include "tests/golden/sparse/spmm_bound.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_bsr_ell
#include "tests/golden/sparse/spmm_bsr_ell.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_csr
#include "tests/golden/sparse/spmm_csr.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_hyb
#include "tests/golden/sparse/spmm_hyb.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_prefetch
#include "tests/golden/sparse/spmm_prefetch.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_tail
#include "tests/golden/sparse/spmm_tail.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sr_bcrs_spmm
#include "tests/golden/sparse/sr_bcrs_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sr_bcrs_tensorized
#include "tests/golden/sparse/sr_bcrs_tensorized.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN transposed_spmm
#include "tests/golden/sparse/transposed_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN weighted_spmm
#include "tests/golden/sparse/weighted_spmm.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_cta
#include "tests/golden/sparse/sddmm_cta.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_partial
#include "tests/golden/sparse/sddmm_partial.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_shared
#include "tests/golden/sparse/sddmm_shared.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_warps
#include "tests/golden/sparse/sddmm_warps.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN rest_shared
#include "tests/golden/sparse/rest_shared.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN spmm_shared
#include "tests/golden/sparse/spmm_shared.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN extremes
#include "tests/golden/sparse/extremes.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN extremes_warps
#include "tests/golden/sparse/extremes_warps.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN sddmm_places
#include "tests/golden/sparse/sddmm_places.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN compress
#include "tests/golden/sparse/compress.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN activations
#include "tests/golden/sparse/activations.cuda.txt"
#undef WEFT_GOLDEN
#define WEFT_GOLDEN quotients
#include "tests/golden/sparse/quotients.cuda.txt"
#undef WEFT_GOLDEN
// clang-format on

namespace weft::simt {
namespace {

// Not watched: the list of arguments is none of the launch's memory.
template <auto kernel>
struct Call;
template <class... Arguments, void (*kernel)(Arguments...)>
struct Call<kernel> {
  __attribute__((no_sanitize("thread"))) static void run(const long long* arguments) {
    pass(arguments, std::index_sequence_for<Arguments...>());
  }
  template <std::size_t... i>
  __attribute__((no_sanitize("thread"))) static void pass(const long long* arguments, std::index_sequence<i...>) {
    kernel(argument<Arguments>(arguments[i])...);
  }
  template <class Argument>
  __attribute__((no_sanitize("thread"))) static Argument argument(long long value) {
    if constexpr (__is_same(Argument, double))  // its bits
      return __builtin_bit_cast(double, value);
    else
      return (Argument)value;
  }
};

}  // namespace

#define WEFT_KERNEL(golden, name) \
  { #golden, "weft_" #name, Call < golden##_##name> ::run }
const SparseKernel kSparseKernels[] = {
    WEFT_KERNEL(batched_sddmm, batched_sddmm_0),
    WEFT_KERNEL(batched_spmm, batched_spmm_0),
    WEFT_KERNEL(block_sddmm, block_sddmm_0),
    WEFT_KERNEL(block_sddmm_dots, block_sddmm_0),
    WEFT_KERNEL(block_sddmm_dots, block_sddmm_1),
    WEFT_KERNEL(block_sddmm_transposed, block_sddmm_0),
    WEFT_KERNEL(block_sddmm_transposed, block_sddmm_1),
    WEFT_KERNEL(block_sddmm_widened, block_sddmm_0),
    WEFT_KERNEL(block_sddmm_widened, block_sddmm_1),
    WEFT_KERNEL(block_spmm, block_spmm_0),
    WEFT_KERNEL(block_spmm_dots, block_spmm_0),
    WEFT_KERNEL(block_spmm_widened, block_spmm_0),
    WEFT_KERNEL(convolution, rgms_0),
    WEFT_KERNEL(convolution, rgms_1),
    WEFT_KERNEL(convolution, rgms_2),
    WEFT_KERNEL(dbsr_spmm, dbsr_spmm_0),
    WEFT_KERNEL(dbsr_spmm, dbsr_spmm_1),
    WEFT_KERNEL(dbsr_spmm_widened, dbsr_spmm_0),
    WEFT_KERNEL(dbsr_spmm_widened, dbsr_spmm_1),
    WEFT_KERNEL(edge_dots, edge_dots_0),
    WEFT_KERNEL(fused_mm, fused_mm_0),
    WEFT_KERNEL(graph_attention, graph_attention_0),
    WEFT_KERNEL(rgms, rgms_0),
    WEFT_KERNEL(rgms, rgms_1),
    WEFT_KERNEL(rgms_hyb_tensorized, rgms_preprocess_0),
    WEFT_KERNEL(rgms_hyb_tensorized, rgms_0),
    WEFT_KERNEL(rgms_hyb_tensorized, rgms_1),
    WEFT_KERNEL(rgms_hyb_tensorized, rgms_2),
    WEFT_KERNEL(rgms_hyb_tensorized, rgms_3),
    WEFT_KERNEL(scaled_by_ctas, scaled_0),
    WEFT_KERNEL(scattered_copied, scattered_0),
    WEFT_KERNEL(scattered_copied, scattered_1),
    WEFT_KERNEL(sddmm, sddmm_0),
    WEFT_KERNEL(sddmm_fused, sddmm_0),
    WEFT_KERNEL(sddmm_rows, sddmm_0),
    WEFT_KERNEL(spmm_bound, spmm_0),
    WEFT_KERNEL(spmm_bsr_ell, spmm_preprocess_0),
    WEFT_KERNEL(spmm_bsr_ell, spmm_0),
    WEFT_KERNEL(spmm_bsr_ell, spmm_1),
    WEFT_KERNEL(spmm_bsr_ell, spmm_2),
    WEFT_KERNEL(spmm_csr, spmm_0),
    WEFT_KERNEL(spmm_hyb, spmm_preprocess_0),
    WEFT_KERNEL(spmm_hyb, spmm_0),
    WEFT_KERNEL(spmm_hyb, spmm_1),
    WEFT_KERNEL(spmm_prefetch, spmm_0),
    WEFT_KERNEL(spmm_tail, spmm_0),
    WEFT_KERNEL(sr_bcrs_spmm, sr_bcrs_spmm_0),
    WEFT_KERNEL(sr_bcrs_tensorized, sr_bcrs_spmm_0),
    WEFT_KERNEL(transposed_spmm, transposed_spmm_0),
    WEFT_KERNEL(weighted_spmm, weighted_spmm_0),
    WEFT_KERNEL(sddmm_cta, sddmm_0),
    WEFT_KERNEL(sddmm_partial, sddmm_0),
    WEFT_KERNEL(sddmm_shared, sddmm_0),
    WEFT_KERNEL(sddmm_warps, sddmm_0),
    WEFT_KERNEL(rest_shared, rest_0),
    WEFT_KERNEL(spmm_shared, spmm_0),
    WEFT_KERNEL(extremes, extremes_0),
    WEFT_KERNEL(extremes_warps, extremes_0),
    WEFT_KERNEL(sddmm_places, sddmm_preprocess_0),
    WEFT_KERNEL(sddmm_places, sddmm_0),
    WEFT_KERNEL(sddmm_places, sddmm_1),
    WEFT_KERNEL(compress, compress_0),
    WEFT_KERNEL(compress, compress_1),
    WEFT_KERNEL(activations, activations_0),
    WEFT_KERNEL(quotients, quotients_0),
};
unsigned sparse_threads_x = 0;
const int kNumSparseKernels = sizeof kSparseKernels / sizeof kSparseKernels[0];

}  // namespace weft::simt
