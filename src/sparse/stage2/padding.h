// Operands of a product in memory of their own: gathered into rows, and 0 where a condition leaves them out.
//
//   Padding padding(stage, found, product);
//   const Expr b = padding.factor(product.b, product.k, product.n);   // B_local[j, k], where B[J[i, j], k] was
//   padding.before;   // allocate B_local[8, 16]; for j: for k: B_local[j, k] = select(J[i, j] < n, B[J[i, j], k], 0.0)
#pragma once

#include <string>
#include <vector>

#include "loop/facts.h"
#include "sparse/stage2/product.h"

namespace weft::sparse {

class Padding {
 public:
  Padding(Stage2& stage, const LoopInNest& found, const Product& product);

  // What is multiplied, where it is now: as it is, if no condition hides it and it lies in rows.
  Expr factor(const Expr& value, const std::string& row, const std::string& column);
  // The same of what has to lie in memory of its own already, in rows or in columns. Throws Error(invalid_argument)
  // where it does not.
  const Expr& factor_in_memory(const Expr& value, const std::string& row, const std::string& column);
  // A load of sums that conditions leave out, beside the product's own; none where nobody reads them: then they may be
  // any numbers, and so may rows of factors that make them.
  Expr read_where_left_out() const;
  // What is added to: only elements that are there are read, and only those are written back.
  Expr target();

  Body before = {}, after = {};  // the product

 private:
  std::string own_memory(const std::string& stem, const std::string& row, const std::string& column, DType dtype);
  Stmt copy(const std::string& block, const std::string& row, const std::string& column, Body body);
  bool is_in_rows(const Expr& value, bool along_n) const;
  void check_reads(const Expr& value, const std::vector<Expr>& asked) const;
  void check_conditions() const;
  bool is_there(const Expr& load, const loop::Facts& facts) const;
  bool has_own_element_each(const std::vector<Expr>& indices) const;
  bool is_one_to_one(const Expr& index, const std::string& variable) const;
  DType dtype_of(const std::string& memory) const;
  DType real_type_of(const Expr& value) const;

  Stage2& stage_;
  const LoopInNest& found_;
  const Product& product_;
  loop::Facts facts_;  // around the product and in its loops
  Names taken_, blocks_;
};

// Memory that one block fills, and only where all of `conditions` hold: from now on it is filled everywhere, with 0
// elsewhere. False where the memory is none such; then nothing changes.
bool fill_with_zeros(Stage2& stage, const Expr& element, const std::vector<Expr>& conditions);

}  // namespace weft::sparse
