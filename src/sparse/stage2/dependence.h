// Which iterations of loops depend on each other: may two of them access one element, one of them writing it? Every
// primitive that changes the order in which statements run asks here.
//
//   // for i in range(m):
//   //   for j in range(n): X[i, j] = X[i - 1, j + 1] * 2.0
//   const Dependences found(stage, around, {&loop_i});
//   found.may_meet(store, load, {{"i", Direction::before}, {"j", Direction::after}});   // true: i = i' - 1, j = j' + 1
//   found.may_meet(store, load, {{"i", Direction::same}});                              // false
//   found.problem_of_order({"i", "j"}, {"j", "i"});   // "X[i, j] and X[i - 1, j + 1] may be one element ..."
//
// An access runs at the points of the loops around it. Two accesses meet where all of their indices are equal. For each
// loop around both, a direction says how the first point lies to the second. The test assumes that all indices are
// equal and looks for a contradiction; where it finds none, the two may meet:
// - A sum of loop variables is not 0 where the bounds of its terms say so: extents of loops, conditions on the way,
//   what arrays of axes hold; or where a factor of all terms does not divide the constant.
// - Equal sums of a multiple of 4 and a rest of 0 to 3 have equal multiples and equal rests, as split makes them.
// - Equal x // e and x % e, which fuse makes, are of equal x.
// - indices[.., p] of an axis are unique below one parent: equal ones are of equal p. Padding holds the axis' length
//   again and again; a condition has to leave it out.
// - Equal operations of equal operands are equal: (row, v - indptr[row]), which fused axes are, is of one v, and so of
//   one multiple and one rest where v is these.
// What is loaded from where the statements store may be anything; but from memory that only holds a copy, as cache_read
// makes it, what was copied is loaded (loop/copies.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loop/copies.h"
#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// How a point lies to another one in a loop.
enum class Direction : uint8_t { before, same, after };
using Directions = std::map<std::string, Direction>;  // by the loop's variable; any where it is not named

// The loops, conditions, lets and allocations around a statement, outermost first.
using Around = std::vector<const Stmt*>;

struct MemoryAccess {
  std::string buffer = {};
  std::vector<Expr> indices = {};  // as the statement says them; none: any, as of a search
  std::vector<Expr> places = {};   // the same, with what was copied in place of copies
  bool writes = false;
  std::optional<Op> update = {};  // reads and writes the element: see Update
  bool atomic = false;
  const Stmt* stmt = nullptr;  // that makes it
  Around around = {};
  bool is_init = false;   // runs before all iterations of `reductions`
  Names reductions = {};  // of its block
  std::string text() const;
  bool is_within(const Stmt& loop) const;
};

// x = x + y, where y does not read x: two such sums of one element may run in either order, but for rounding. Also with
// differences, products, max or min in place of sums, but not of one kind with another.
struct Update {
  Op op = Op::add;
  std::vector<Expr> others = {};  // what is added
};
std::optional<Update> update_of(const Stmt& store);

// Reductions around a block whose variables do not say where its init writes: that runs before them. Memory of its own
// is new in every iteration of the loops around that.
Names reductions_of(const Stmt& block, const Around& around);

// Statements of a stage, and how their accesses of what they store to depend on each other.
class Dependences {
 public:
  // Loops of `around` are the same point for all.
  Dependences(const Stage2& stage, const Around& around, const std::vector<const Stmt*>& statements);

  // Of buffers of the program and of memory of their own that the statements store to, in the order of the text.
  const std::vector<MemoryAccess>& accesses() const { return accesses_; }
  // Whether the two may access one element where the point of `a` lies so to the point of `b`.
  bool may_meet(const MemoryAccess& a, const MemoryAccess& b, const Directions& directions) const;

  // Whether the two may access one element where iterations of `loop_a`, around `a`, and `loop_b`, around `b`, have
  // different numbers.
  bool may_meet_in_others(const MemoryAccess& a, const Stmt& loop_a, const MemoryAccess& b, const Stmt& loop_b,
                          const Directions& directions) const;

  // Two accesses whose order would change, in words; "" where there are none. The loops are all from the first to the
  // last that change places.
  std::string problem_of_order(const std::vector<std::string>& from, const std::vector<std::string>& to) const;
  // An access of one element in two iterations of the loop, which could not run at once, in words. Sums that are all
  // atomic could.
  std::string problem_of_sharing(const std::string& loop) const;
  // An element of the buffer that two iterations of the loop write; "" where there is none.
  std::string written_twice(const std::string& buffer, const std::string& loop) const;

  // Two of them that meet, the order of which matters, the first of a statement that `is_earlier` holds for and the
  // second of one that it does not; and the loop around both that tells which runs first: "" where the text does.
  struct Meet {
    MemoryAccess earlier = {}, later = {};
    std::string loop = {};
  };
  using IsEarlier = std::function<bool(const MemoryAccess&)>;
  // At any points at all.
  std::optional<Meet> meets(const IsEarlier& is_earlier) const;
  // Where the second runs first, the way the statements stand.
  std::optional<Meet> overtakes(const IsEarlier& is_earlier) const;

 private:
  bool may_meet_signed(const MemoryAccess& a, const MemoryAccess& b, const Directions& signs) const;
  bool changes_order(const MemoryAccess& a, const MemoryAccess& b, const std::vector<std::string>& from,
                     const std::vector<std::string>& to) const;
  std::vector<std::string> loops_around_both(const MemoryAccess& a, const MemoryAccess& b) const;

  const Stage2& stage_;
  Around around_;
  Names written_;  // what the statements store to
  loop::Copies copies_;
  loop::Facts facts_;
  std::vector<MemoryAccess> accesses_;
};

}  // namespace weft::sparse
