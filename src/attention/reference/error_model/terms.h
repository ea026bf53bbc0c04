// What of the numbers of a call its error bound depends on, of one row and head.
#pragma once

#include <vector>

#include "attention/reference/error_model/transforms.h"
#include "attention/reference/observer.h"
#include "attention/rounding.h"

namespace weft::reference {

// Logits of this size are what the bound's constant is made for: sm_scale * sum |q_i k_i| of a key. Rows with larger
// ones get a larger `scale` instead.
inline constexpr double kReferenceLogit = 16;

// How far kernels' vectors are from those of the reference, element by element; empty: not at all.
using VectorError = Vector;

// Of the tokens of a KV head, beside KvHead.
struct KvErrors {
  std::vector<VectorError> keys, values;
  Vector value_scales;  // of each token, where the rounding asks for them
};

// As MeasuredReference has them, of one row and head.
struct Terms {
  Vector scale, moved, coarse;
  double moved_lse = 0, coarse_lse = 0;
  double lse_error = 0;  // what lse may be off by before its hook, where its size alone tells
};

// A call, as far as its errors are concerned.
struct ErrorContext {
  const Hooks& hooks;
  const Transforms& transforms;
  const attention::Rounding& rounding;
  double sm_scale;
};

VectorError error_of(const VectorHook& exact, const VectorHook& rounded, const abi::VectorRow& row, const Vector& x);

Terms terms_of(const ErrorContext& call, const AttendedRow& row, const VectorError& q_error, const KvErrors& kv_errors);
// Errors of o pass through the derivative of the output transform, and those of the lse that it reads.
void pass_output(const ErrorContext& call, const AttendedRow& row, Terms& terms);
void pass_lse(const ErrorContext& call, const AttendedRow& row, Terms& terms);

}  // namespace weft::reference
