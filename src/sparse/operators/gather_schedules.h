// SpMM and SDDMM: their programs, and schedules in any formats.
#pragma once

#include <string>

#include "sparse/formats/format.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {

// How many elements ahead gathered rows of fp32 are best fetched.
int64_t default_prefetch(int64_t feat);

extern const char* const kSpmmProgram;
extern const char* const kSddmmProgram;
// The fastest schedule for rows of `feat` features in formats that has_rows_in_registers() names.
// prefetch: how many elements ahead gathered rows are fetched; 0 = not.
// tile: features per pass over a row group (CSR); 0 = all.
// group: rows handed to a worker together; 0 = single rows, balanced by nnz.
std::string spmm_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch,
                          int64_t tile = 0, int64_t group = 0);
// Whether sums of a row, or of all rows of a block, stay in registers: CSR as it is, or one of csr, ell, bsr and hyb.
bool has_rows_in_registers(const Formats& formats);
// Of any list of formats, at least one; `cut` is for cards.
std::string spmm_formats_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit,
                                  const CardCut& cut = {});
// In bf16 with sums in fp32 that are rounded once, for formats that add to a row several times; `schedule` is that of
// the program in fp32.
ReadyProgram rounded_spmm(int64_t feat, const std::string& schedule, const VectorUnit& unit);
std::string sddmm_schedule(int64_t feat, DType dtype, const VectorUnit& unit, int64_t prefetch, int64_t group = 0);
// Of a list of formats, at least one.
std::string sddmm_format_schedule(int64_t feat, const Formats& formats, const VectorUnit& unit, int64_t prefetch = 0,
                                  int64_t group = 0);
// What SparseOptions.format names, with hyb(c) as hyb(c, k) of this structure.
Formats formats_for(const std::string& text, const Structure& a);

}  // namespace weft::sparse
