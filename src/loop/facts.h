// What is known at a place of a program: ranges of loop variables, conditions that hold, values of integer buffers.
//
//   Facts facts(function);
//   facts.push_loop("k", variable("feat"));
//   facts.holds(less(variable("k"), variable("feat")));   // true
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loop/ir.h"
#include "loop/linear.h"

namespace weft::loop {

class Facts {
 public:
  Facts() = default;
  explicit Facts(const Function& function)
      : buffers_(function.buffers), scalars_(function.scalars.begin(), function.scalars.end()) {}
  void push_loop(std::string variable, Expr extent) { loops_.emplace_back(std::move(variable), std::move(extent)); }
  void pop_loop() { loops_.pop_back(); }
  // A variable of `let`, and what is known of it: a position that was searched, -1 where there is none.
  void push_let(std::string variable, Expr value) { lets_.emplace_back(std::move(variable), std::move(value)); }
  void pop_let() { lets_.pop_back(); }
  const Expr* let_of(const std::string& variable) const;  // null: it is none
  // `changed`: statements that run where it holds. What it says of elements that they store is no fact behind the
  // store.
  void push_condition(const Expr& condition, const Body& changed = {});
  void pop_condition() { conditions_.pop_back(); }
  // Whether it is proven; false says nothing.
  bool is_nonnegative(const Expr& e) const;
  bool is_positive(const Expr& e) const;  // 1 or more
  bool holds(const Expr& condition) const;
  bool fails(const Expr& condition) const;
  // Whether it is proven that no iteration comes here: a condition fails wherever the loops around have one.
  bool is_never_reached() const;

 private:
  bool is_nonnegative(Linear sum, int depth) const;  // of so many conditions
  bool is_nonnegative_by_conditions(const Linear& sum, int depth) const;
  Expr most_of(const Expr& e) const;
  bool bound_some(Linear& sum) const;
  bool bound_product(Linear& sum, const Expr& term, int64_t coefficient) const;
  bool replace_by_bound(Linear& sum, const Expr& term, int64_t coefficient) const;
  const Buffer* bounded_buffer(const Expr& e) const;
  std::vector<Expr> slacks_of(const Expr& condition) const;
  mutable int nesting_ = 0;  // of proofs that need others
  mutable int steps_ = 0;    // of all of them
  std::vector<Buffer> buffers_;
  Names scalars_;  // never negative, as loop variables
  std::vector<std::pair<std::string, Expr>> loops_;
  std::vector<std::pair<std::string, Expr>> lets_;
  std::vector<std::vector<Expr>> conditions_;  // what is at least 0 in them
};

// Integer arithmetic in its shortest form, conditions that are proven left out.
Expr simplify(const Expr& e, const Facts& facts);

}  // namespace weft::loop
