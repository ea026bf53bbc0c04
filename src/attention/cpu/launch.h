// A plan on this machine's workers.
#pragma once

#include "attention/cpu/kernels/core.h"
#include "attention/cpu/leaf.h"
#include "attention/kernel.h"

namespace weft::attention::cpu {

// What the CPU runs of a spec: the leaf, and the core that calls it.
struct CpuCode : Code {
  LeafHandle leaf;
  const CoreTable* core = nullptr;
};

void launch(const AttentionKernel::Impl& kernel, const RunArgs& args, Workspace& workspace, Stream stream);
void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t floats, Stream stream);

}  // namespace weft::attention::cpu
