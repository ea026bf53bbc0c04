// Programs that several tests share.
#pragma once

#include <fmt/format.h>

#include <string>

namespace weft::sparse::test {

inline constexpr const char* kCsrAxis = "sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)";

// T = 2 X, S its rows' sums, Z what is left of each element. `head`: name and parameters; `axis`: what J is.
inline std::string steps_program(const std::string& head, const std::string& axis) {
  return fmt::format(R"(program {}:
  I = dense_fixed(m)
  J = {}
  X = buffer(I, J): fp32
  T = temporary(I, J): fp32
  S = temporary(I): fp32
  Z = buffer(I, J): fp32
  iterate twice(I, J) "SS" as (a, b):
    T[a, b] = X[a, b] * 2.0
  iterate sums(I, J) "SR" as (i, j):
    init:
      S[i] = 0.0
    S[i] = S[i] + T[i, j]
  iterate rest(I, J) "SS" as (i, j):
    Z[i, j] = S[i] - T[i, j]
)",
                     head, axis);
}

}  // namespace weft::sparse::test
