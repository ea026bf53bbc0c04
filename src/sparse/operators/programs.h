// The programs of ready operators, with their schedules.
#pragma once

#include <optional>

#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {

struct AttentionForm {
  bool same = false;      // keys are the values, and are there already when those are read
  bool is_apart = false;  // scores of all rows before the values of any, in loops of their own
  // How many elements ahead rows are fetched, 0: not; default_prefetch() where nothing is said.
  std::optional<int64_t> keys_ahead = {}, values_ahead = {};
};
ReadyProgram attention_program(int64_t feat, int64_t feat_v, DType dtype, const VectorUnit& unit = {},
                               const AttentionForm& form = {});
// Which of both graph_attention runs, over keys of so many bytes.
bool attention_runs_apart(int64_t key_bytes, bool same);
ReadyProgram fused_mm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
ReadyProgram batched_spmm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
ReadyProgram batched_sddmm_program(int64_t feat, DType dtype, const VectorUnit& unit = {});
// `dots`: products of bf16 in pairs, by an instruction.
// `rows` in registers, of a block; 0: as many as tend to be best.
ReadyProgram block_spmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots = false,
                                const VectorUnit& unit = {}, int64_t rows = 0);
ReadyProgram block_sddmm_program(int64_t heads, int64_t block, int64_t feat, DType dtype, bool dots = false,
                                 const VectorUnit& unit = {});
ReadyProgram dbsr_spmm_program(int64_t block, int64_t feat, DType dtype, bool dots = false,
                               const VectorUnit& unit = {});
ReadyProgram sr_bcrs_spmm_program(int64_t t, int64_t g, int64_t feat, DType dtype, const VectorUnit& unit = {});
// Rows of `tile` stand together; without values every edge counts once.
ReadyProgram rgms_program(int64_t tile, bool has_values, int64_t feat_in, int64_t feat_out, DType dtype,
                          const VectorUnit& unit = {}, int64_t vectors = 4, int64_t prefetch = 0);
ReadyProgram transposed_spmm_program(int64_t feat, bool weighted, const VectorUnit& unit = {});
ReadyProgram weighted_spmm_program(int64_t feat, const VectorUnit& unit = {});
ReadyProgram edge_dots_program(int64_t feat, const VectorUnit& unit = {});

}  // namespace weft::sparse
