// Integer expressions as sums: constant + coefficient * term + ..., a term being whatever is no sum itself.
//
//   Linear a = linear_of(i * 4 + 3 - i);     // 3 + 3 * i
//   expr_of(a);                              // i * 3 + 3
#pragma once

#include <utility>
#include <vector>

#include "loop/expr.h"

namespace weft::loop {

struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms = {};  // different terms, no coefficient 0, in order of appearance
  bool overflows = false;                            // then nothing is known of it
  void add(const Expr& term, int64_t coefficient);
  void add(const Linear& other, int64_t factor = 1);
};

Linear linear_of(const Expr& e);
Expr expr_of(const Linear& sum);
// The coefficient of a variable, if the rest does not use it.
bool is_linear_in(const Expr& e, const std::string& variable, int64_t* coefficient, Expr* rest);

}  // namespace weft::loop
