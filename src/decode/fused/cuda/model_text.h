// The kernel of a whole step, generated from a partition: constants and phases as text, over the leaves that stand in
// kernels/ and tile/cuda.
//
//   const ModelShape shape = shape_of(partition, 2, DType::bf16);   // for steps of up to 2 rows
//   fmt::print("{}", model_text(partition, shape).instances);
//
// Layers that are alike are one loop. The same partition gives the same text.
#pragma once

#include "decode/fused/cuda/model_shape.h"
#include "decode/fused/partition.h"
#include "jit/cuda/kernel_text.h"

namespace weft::decode::fused {

cuda::KernelText model_text(const Partition& partition, const ModelShape& shape);

}  // namespace weft::decode::fused
