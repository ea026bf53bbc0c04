// Iterations and buffers of one format of decompose_format.
//
//   const FormatRewriter rewriter(program, csrmm, A, ell_rule(..., 3), "");
//   rewriter.copy({});        // preprocess copy_A_ell_3: A_ell_3[i, j] = A[i, j]
//   rewriter.compute(true);   // iterate csrmm_ell_3: C[i, k] = C[i, k] + A_ell_3[i, j] * B[j, k]
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sparse/formats/rule.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

class FormatRewriter {
 public:
  // All but `copied` are referred to. `copied`: the buffer in that format, where there is one already; else "".
  FormatRewriter(const Stage1& program, const Iteration& it, const SparseBuffer& buffer, const FormatRewriteRule& rule,
                 const std::string& copied);

  // Whether the iteration reads the buffer; of one that it writes, the format holds results alone.
  bool copies() const { return copies_; }
  SparseBuffer new_buffer() const { return {name_, rule_.buffer_axes, buffer_.dtype, is_computed_}; }
  // What the iteration writes on the decomposed axes, on those of the format.
  std::vector<SparseBuffer> new_results() const;

  // `before`: the formats that took elements before this one, with their buffers. Blocks may have places of those,
  // which stay 0: no element is counted twice.
  Iteration copy(const std::vector<std::pair<const FormatRewriteRule*, std::string>>& before) const;
  // `is_first`: no other format took elements before this one.
  Iteration compute(bool is_first) const;
  // The format's result at the coordinates of the old one; 0 where it stores none.
  Expr gathered(const Stmt& store) const;

 private:
  Expr element_in(const FormatRewriteRule& other, const std::string& name) const;
  std::vector<Expr> places_in(const FormatRewriteRule& rule, const Substitution& at) const;
  std::vector<Expr> new_places() const;
  Expr moved_result(const Expr& load) const;
  Body init_of_result() const;
  template <class T>
  std::vector<T> with_places(const SparseBuffer& old, const std::vector<T>& list, const std::vector<T>& now) const;
  bool is_result(const std::string& name) const;
  bool is_replaced(const std::string& axis) const;
  const std::string& result_name(const std::string& old) const { return result_names_.at(old); }
  const std::string& iterator_of(const std::string& axis) const;
  std::string old_of(const std::string& axis) const;
  std::string stem_of(const std::string& axis) const;
  char kind_of(const std::string& axis) const;

  const Stage1& program_;
  const Iteration& it_;
  const SparseBuffer& buffer_;
  const FormatRewriteRule& rule_;
  std::vector<std::string> old_axes_;
  bool gathers_, copies_, is_computed_;
  std::string name_;
  std::map<std::string, std::string> result_names_;
  std::map<std::string, std::string> iterator_;
  Substitution old_;  // the old iterators, of the new ones
};

}  // namespace weft::sparse
