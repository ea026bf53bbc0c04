// What gemm::linear is compared with, in fp64.
#pragma once

#include "device/cpu/cpuid.h"
#include "ops/gemm/linear.h"
#include "tests/ops/weights.h"

namespace weft::test {

// x . row `row` of the weights, and how far from it a product in this precision may be: the bounds of
// docs/precision.md, as shares of sum |w| |x| for the rounding of sums, and of the scale of the activations, where they
// are integers, for their rounding: a row's largest magnitude / 65,024 (standard), a block's / 254 (fast), 2^-8 |x|
// where bf16 dots are used.
struct ExactSum {
  double value, bound;
};
ExactSum exact_sum(const Weights& w, const float* x, int64_t row, Precision precision, Isa isa);

}  // namespace weft::test
