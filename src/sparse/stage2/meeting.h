// Whether two accesses may be of one element, at two points of the loops around them: the equations of their indices,
// and what contradicts them (dependence.h says how).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loop/linear.h"
#include "sparse/stage2/dependence.h"

namespace weft::sparse {

class Meeting {
 public:
  // `written`: buffers whose values may differ between the points.
  Meeting(const Stage2& stage, const loop::Copies& copies, const loop::Facts& facts, const Names& written)
      : stage_(stage), copies_(copies), facts_(facts), written_(written) {}

  // The first `num_same` of the statements around both are the same point. False where the directions are none that
  // two points of one memory have.
  bool take(const MemoryAccess& a, const MemoryAccess& b, size_t num_same, const Directions& directions);
  // Variables of the two loops, one around each, are not equal: less at the first point, or at the second.
  void assume_less_at_first(const Stmt& first, const Stmt& second);
  void assume_less_at_second(const Stmt& first, const Stmt& second);
  // Whether the equations contradict each other, or what is known; false says nothing.
  bool is_refuted();

 private:
  using Pair = std::pair<Expr, Expr>;
  void declare(const Stmt& stmt, Substitution& point, const char* suffix);
  void declare_both(const Stmt& loop, const Direction* direction);
  Expr at(const Expr& e, const Substitution& point);
  Expr at(const Stmt& stmt, const Substitution& point);
  bool contradicts(const Pair& equation) const;
  void derive(const Pair& equation);
  void derive_parts(const Pair& equation);
  void derive_unique(const Expr& a, const Expr& b);
  void derive_quotients();
  void assume(const Expr& a, const Expr& b);
  bool is_known(const Expr& a, const Expr& b) const;
  bool is_equal(const Expr& a, const Expr& b, int depth) const;
  bool is_congruent(const Expr& a, const Expr& b, int depth) const;
  loop::Linear difference(const Expr& a, const Expr& b, int depth) const;

  const Stage2& stage_;
  const loop::Copies& copies_;
  loop::Facts facts_;
  const Names& written_;
  Substitution first_, second_;  // what the variables of a and of b are
  int num_unknown_ = 0;
  std::vector<Pair> equations_;
  std::vector<Pair> known_;  // equal parts of equations
};

}  // namespace weft::sparse
