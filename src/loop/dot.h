// A nest that is annotated `dot`: two products for each lane of a vector,
//
//   for j in range(2) [reduce, dot]:
//     for lane in range(16) [vectorize]:
//       sum[lane] = sum[lane] + a[j] * b[j, lane]
#pragma once

#include <optional>
#include <string>

#include "loop/ir.h"

namespace weft::loop {

struct DotNest {
  std::string sum = {}, a = {}, b = {};             // what is added to, and the factors
  Expr first_sum = {}, first_a = {}, first_b = {};  // where their elements begin
  Expr second_b = {};                               // the row behind b's first one; none: its pairs lie side by side
  int64_t lanes = 0;
};
// None where the loops are others.
std::optional<DotNest> dot_nest(const Stmt& loop);

}  // namespace weft::loop
