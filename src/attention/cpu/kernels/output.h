// Finished states leave for the output tensors.
#pragma once

#include "attention/cpu/kernels/core.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// States in order [KV head][row][query head of the group]: o is normalised, changed by the output hook in place,
// rounded and stored; lse, changed by its hook, too where it is wanted.
struct OutputStates {
  const PlanRow* rows;
  int num_rows, first_kv_head, num_kv_heads;
  float* o;
  long long ld;
  const float* lse;
  abi::VectorRow* vectors;  // room for one a state
  float* vector_scratch;    // [head_dim_vo]
};
void write_output(const AttendArgs& args, const OutputStates& states);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
