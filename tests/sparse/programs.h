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

// C = A B, dense. `where`: conditions on i, j and l.
inline std::string dense_program(const std::string& where = "") {
  return fmt::format(R"(program dense(m, n, inner):
  I = dense_fixed(m)
  J = dense_fixed(n)
  L = dense_fixed(inner)
  A = buffer(I, L): fp32
  B = buffer(L, J): fp32
  C = buffer(I, J): fp32
  iterate product(I, J, L) "SSR" as (i, j, l){}{}:
    init:
      C[i, j] = 0.0
    C[i, j] = C[i, j] + A[i, l] * B[l, j]
)",
                     where.empty() ? "" : " where ", where);
}

// Programs whose buffers and iterations `rest` declares: over m rows of 8, over a dense matrix, and over one in CSR.
inline std::string program_of_rows(const std::string& rest) {
  return "program p(m):\n  I = dense_fixed(m)\n  U = dense_fixed(8)\n" + rest;
}
inline std::string program_of_matrix(const std::string& rest) {
  return "program p(m, n):\n  I = dense_fixed(m)\n  J = dense_fixed(n)\n" + rest;
}
inline std::string program_in_csr(const std::string& rest) {
  return fmt::format("program p(m, n, nnz):\n  I = dense_fixed(m)\n  J = {}\n", kCsrAxis) + rest;
}

}  // namespace weft::sparse::test
