// The oracle: attention in fp64, written to be read, sharing no code with kernels or planner. It takes the very
// arguments of plan and run. A variant's functors run in it as scalar double code (compiled from the same text).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "weft/attention.h"

namespace weft {

// Logits of this size are what the bound's constant is made for: sm_scale * sum |q_i k_i| of a key. Rows with larger
// ones get a larger `scale` instead.
inline constexpr double kReferenceLogit = 16;

struct ReferenceResult {
  std::vector<double> o;    // [nnz_qo, num_qo_heads, head_dim_vo]
  std::vector<double> lse;  // [nnz_qo, num_qo_heads]; empty without softmax
  // Like o: sum over keys of p * |v|, what rounding errors are measured against; times the row's largest
  // sm_scale * sum |q_i k_i| * |slope of the logits' transform| over kReferenceLogit where that is above 1; through the
  // derivative of the output transform. Without softmax, p is |p| and how much rounding of the logit moves it.
  std::vector<double> scale;
  // Like o and lse: how far they move, at most, by what float rounds where a variant makes large numbers of small ones
  // or the other way round, as transforms of logits and angles of rotations do.
  std::vector<double> moved = {}, moved_lse = {};
  // Of int8 and int4 KV, like o and lse: how far queries and probabilities rounded to 16 bits (compute type int8) can
  // move them, at most.
  std::vector<double> coarse = {}, coarse_lse = {};
};

// What of a call is computed; by default all of it.
struct ReferencePart {
  int64_t row_begin = 0, row_end = std::numeric_limits<int64_t>::max();  // rows of q; the others stay 0
  int key_begin = 0, key_end = std::numeric_limits<int>::max();          // positions
  bool partial = false;                                                  // a state to be merged: no output transform
};

// plan_input gives lengths and pages, tensors the data (CPU, any dtype a spec allows).
ReferenceResult attention_reference(const AttentionSpec& spec, const PlanInput& plan_input,
                                    const AttentionTensors& tensors, const ReferencePart& part = {});

// The element `offset` elements from a tensor's first, of any type that a spec allows.
double element(const TensorView& tensor, int64_t offset);

// |o - o*| <= u |o*| + C * scale + moved: u the unit roundoff of o's type, C of the compute type and kv_len
// (docs/numerics.md). And + coarse where products are in integers.
class ErrorBound {
 public:
  ErrorBound(const AttentionSpec& spec, DType compute);
  // Of element i of o, of a row that has kv_len keys.
  double operator()(int64_t kv_len, const ReferenceResult& reference, size_t i) const;
  // Of one row and head's lse.
  double of_lse(const ReferenceResult& reference, size_t state) const;

 private:
  bool integers_;
  double of_keys_, unit_, smallest_, of_lse_, of_lse_vectors_;
};

}  // namespace weft
