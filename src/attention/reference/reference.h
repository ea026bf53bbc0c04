// The oracle: attention in fp64, written to be read, sharing no code with kernels or planner. It takes the very
// arguments of plan and run. A variant's functors run in it as scalar double code (compiled from the same text).
//
//   const ReferenceResult expected = attention_reference(spec, plan_input, tensors);
//
// How far a kernel may be from it is another question: error_model/error_model.h.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "weft/attention.h"

namespace weft {

namespace reference {
class Observer;  // observer.h
}

struct ReferenceResult {
  std::vector<double> o;    // [nnz_qo, num_qo_heads, head_dim_vo]
  std::vector<double> lse;  // [nnz_qo, num_qo_heads]; empty without softmax
};

// What of a call is computed; by default all of it.
struct ReferenceScope {
  int64_t row_begin = 0, row_end = std::numeric_limits<int64_t>::max();  // rows of q; the others stay 0
  int key_begin = 0, key_end = std::numeric_limits<int>::max();          // positions
  bool partial = false;                                                  // a state to be merged: no output transform
};

// plan_input gives lengths and pages, tensors the data (in host memory, any dtype a spec allows). The observer, if
// there is one, sees each row as it was attended.
ReferenceResult attention_reference(const AttentionSpec& spec, const PlanInput& plan_input,
                                    const AttentionTensors& tensors, const ReferenceScope& scope = {},
                                    reference::Observer* observer = nullptr);

// The element `offset` elements from a tensor's first, of any type that a spec allows.
double element(const TensorView& tensor, int64_t offset);

}  // namespace weft
