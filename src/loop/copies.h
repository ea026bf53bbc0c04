// Memory that holds a copy of what nothing writes: a load from it is the same as a load of what was copied, of which
// more is known.
//
//   // for j in range(n):
//   //   allocate J_local[1]: int64 in register
//   //   J_local[0] = J[i, j]
//   //   Y[J_local[0]] = 1.0
//   const Copies copies(body, facts);
//   copies.original(index, last);   // J[i, j], of the index J_local[0] of the last statement
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "loop/facts.h"

namespace weft::loop {

// Memory is a copy where one statement alone stores to it, a load of a buffer that no statement stores to, at places
// that are variables of the loops between the memory and that statement. A load is of what was copied where
// - it stands behind that statement, in the body of the memory,
// - the loops of the copy come to its place, and
// - conditions between the memory and that statement hold at it.
class Copies {
 public:
  // Of all statements of the body, which has to stay where it is; none where it has no memory. `facts`: of buffers and
  // scalars.
  Copies(const Body& body, Facts facts);
  Copies(const Copies&) = delete;
  // The expression of the statement `in`, with loads of what was copied in place of loads of copies.
  Expr original(const Expr& e, const Stmt& in) const;
  // Buffers that copies were made of.
  const Names& sources() const { return sources_; }

 private:
  // A place that is stored at. `end`: it is the variable of a loop up to there; none: it is one place.
  struct Place {
    Expr index = {}, end = {};
  };
  struct Copy {
    std::string memory = {};
    std::vector<Expr> extents = {};  // of the memory
    std::vector<Place> places = {};
    Expr source = {};                   // at those places
    std::vector<Expr> conditions = {};  // that have to hold there
  };
  // What stands around a statement that loads from memory, outermost first, and the copies before it.
  struct Scope {
    std::vector<const Stmt*> around = {};
    std::vector<const Copy*> copies = {};
  };

  void look(const Body& body, Scope scope);
  void note(const Stmt& stmt, const Scope& scope);
  const Copy* copy_by(const Stmt& memory, const Stmt& stmt);
  bool is_constant(const Expr& e, const Names& set_inside) const;
  Expr original(const Copy& copy, const std::vector<Expr>& indices, const Scope& scope) const;
  bool holds(const Expr& condition, const Scope& scope) const;
  Facts facts_within(const Scope& scope) const;

  Facts facts_;
  Names memories_;                         // that one statement stores a load to
  std::map<std::string, int> num_stores_;  // to each name
  std::deque<Copy> copies_;
  Names sources_;
  std::map<const Stmt*, Scope> scopes_;
};

}  // namespace weft::loop
