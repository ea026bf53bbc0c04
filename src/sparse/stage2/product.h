// Three loops around a sum of products, c[m, n] = c[m, n] + a[m, k] * b[k, n], and the conditions between them.
//
//   Product product = product_at(find_loop(stage, "spmm.ii"));
//   product.m;            // "ii"
//   product.conditions;   // j_indices[s, g, j] < n
#pragma once

#include <string>
#include <vector>

#include "sparse/stage2/nest.h"

namespace weft::sparse {

struct Product {
  std::string m = {}, n = {}, k = {};  // variables of the loops; n is that of c's last index
  std::vector<Stmt> shells = {};       // loops and blocks, outermost first, without bodies; no conditions
  Stmt block = {};                     // around the sum
  Expr c = {}, a = {}, b = {};         // what is added to, and the factors: expressions of m and k, of k and n
  bool is_b_first = false;             // b * a in the text
  std::vector<Expr> conditions = {};   // of the sum, in the order in which they are asked

  Names variables() const { return {m, n, k}; }
  Expr extent_of(const std::string& variable) const;
  // Conditions that ask for some of these variables, and for no other one of the product.
  std::vector<Expr> conditions_on(const Names& some) const;
  std::vector<Expr> conditions_around() const;  // which ask for none of them
  // The loops around the sum of these operands.
  Stmt nest_of(const Expr& c_, const Expr& a_, const Expr& b_) const;
};

// Throws Error(invalid_argument) that begins with tensorize(...) where the loops are no such product.
Product product_at(const LoopInNest& found);

// Variables out of `some` that are used.
Names used_of(const Expr& e, const Names& some);
// One condition that holds where all do; none where there are none.
Expr all_hold(const std::vector<Expr>& conditions);

}  // namespace weft::sparse
