// The program of C = A B for dense matrices, whose places a reader chooses: row by row, turned, or in strips.
//
//   compile(parse(dense_product("I, L", "L, J") + "schedule:\n  lower()\n  parallel(product.i)\n"));   // C = A B
//   dense_product("L, I", "L, J"), dense_product("I, L", "J, L")                                       // A^T B, A B^T
//   dense_product("I, L", "JO, L, JI")   // B in strips of 16 columns, [cols / 16, inner, 16]
#pragma once

#include <cctype>
#include <string>

// Parameters: rows, cols, inner. The iteration is product(I, L, J) as (i, l, j).
inline std::string dense_product(const std::string& a_axes, const std::string& b_axes) {
  // "I, L" is read at [i, l]; of a strip, column j is the one of number j % 16 in strip j // 16.
  const auto places = [](const std::string& axes) {
    if (axes == "JO, L, JI") return std::string("j // 16, l, j % 16");
    std::string text = axes;
    for (char& c : text) c = static_cast<char>(std::tolower(c));
    return text;
  };
  const bool strips = b_axes == "JO, L, JI";
  return std::string("program product(rows, cols, inner):\n") + "  I = dense_fixed(rows)\n  J = dense_fixed(cols)\n" +
         "  L = dense_fixed(inner)\n" + (strips ? "  JO = dense_fixed(cols // 16)\n  JI = dense_fixed(16)\n" : "") +
         "  A = buffer(" + a_axes + "): fp32\n  B = buffer(" + b_axes + "): fp32\n  C = buffer(I, J): fp32\n" +
         "  iterate product(I, L, J) \"SRS\" as (i, l, j):\n    init:\n      C[i, j] = 0.0\n" +
         "    C[i, j] = C[i, j] + A[" + places(a_axes) + "] * B[" + places(b_axes) + "]\n";
}
