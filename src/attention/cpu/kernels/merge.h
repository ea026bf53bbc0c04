// Partial states become one state.
#pragma once

#include "attention/cpu/kernels/core.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// As of CoreTable.
long long merge_scratch(const AttendArgs& args, int kv_heads);
void merge(const AttendArgs& args, const MergeGroup& group, char* scratch);
void merge_states(const MergeStatesArgs& args, long long begin, long long end);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
