// How far a correct kernel's output may be from the oracle: a bound of each element of o and each lse, from what the
// backend says it rounds and the numbers of the call. docs/numerics.md derives every term.
//
//   const attention::Rounding rounding = backend.rounding(spec, compute);
//   const MeasuredReference expected = measured_reference(spec, plan_input, tensors, rounding);
//   const ErrorBound bound(spec, rounding);
//   right = std::abs(o[i] - expected.o[i]) <= bound(kv_len, expected, i);
#pragma once

#include <cstdint>
#include <vector>

#include "attention/reference/reference.h"
#include "attention/rounding.h"
#include "weft/attention.h"

namespace weft {

// The reference, and what errors of it are measured against.
struct MeasuredReference : ReferenceResult {
  // Like o: sum over keys of p * |v|; times the row's largest sm_scale * sum |q_i k_i| * |slope of the logits'
  // transform| over kReferenceLogit (terms.h) where that is above 1; through the derivative of the output transform.
  // Without softmax, p is |p| and how much rounding of the logit moves it.
  std::vector<double> scale;
  // Like o and lse: how far they move, at most, by what a variant's own arithmetic rounds where it makes large numbers
  // of small ones or the other way round, as transforms of logits and angles of rotations do.
  std::vector<double> moved, moved_lse;
  // Like o and lse: how far they move, at most, where queries and probabilities become integers. Empty where the
  // rounding has no such steps.
  std::vector<double> coarse, coarse_lse;
};

// attention_reference, measured. What was measured for products of integers serves those that are not, of the same
// backend and spec, too.
MeasuredReference measured_reference(const AttentionSpec& spec, const PlanInput& plan_input,
                                     const AttentionTensors& tensors, const attention::Rounding& rounding,
                                     const ReferenceScope& scope = {});

// |o - o*| <= u |o*| + C * scale + moved + coarse: u the unit roundoff of o's type, C of the rounding and kv_len.
class ErrorBound {
 public:
  ErrorBound(const AttentionSpec& spec, const attention::Rounding& rounding);
  // Of element i of o, of a row that has kv_len keys.
  double operator()(int64_t kv_len, const MeasuredReference& reference, size_t i) const;
  // Of one row and head's lse.
  double of_lse(const MeasuredReference& reference, size_t state) const;

 private:
  bool integers_;
  double sums_, of_keys_, unit_, smallest_, of_lse_, of_lse_vectors_;
};

}  // namespace weft
