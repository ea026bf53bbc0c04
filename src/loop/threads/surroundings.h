// What stands around a statement of a kernel: loops, conditions, names; and from that, who accesses an element.
//
//   around.open(loop);                              // for k in range(8) [bind=threadIdx.x]
//   around.owner_of(k * 4 + 1, around.thread_loops()).words;   // "threadIdx.x * 4 + 1": one thread alone
//   around.close(loop);
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loop/facts.h"
#include "loop/threads/kernel.h"

namespace weft::loop {

// An outermost loop over CTAs, by its number in the order of the text.
struct CtaNest {
  size_t number = 0;
  // Whether its iterations are known to access elements of their own: bind() has shown that of each time it runs, and
  // it runs once, and within it an axis is bound once.
  bool is_apart = false;
};

// A loop that is bound to an axis.
struct BoundLoop {
  const Stmt* loop;
  size_t num_names;   // that are declared outside of it
  CtaNest nest = {};  // where it is an outermost one over CTAs
};

// The only thread, or CTA, that accesses an element in the loops asked about.
struct Owner {
  std::string words = {};  // the same for the same one; "": it may be any
  Names fixed = {};        // variables in those words
};

class Surroundings {
 public:
  explicit Surroundings(const Kernel& kernel) : kernel_(kernel), facts_(kernel.function) {}

  // Throws Error(unsupported) where a loop around is bound to the same axis.
  void open(const Stmt& loop);
  void close(const Stmt& loop);
  void push_condition(const Expr& condition) { facts_.push_condition(condition); }
  void pop_condition() { facts_.pop_condition(); }
  void declare(const Stmt& stmt);  // a let, or a store: what it sets
  // Names of a body end with it.
  size_t num_names() const { return names_.size(); }
  void forget_names(size_t all_but) { names_.resize(all_but); }

  const std::vector<BoundLoop>& bound_loops() const { return bound_; }  // outermost first
  std::vector<BoundLoop> thread_loops() const;
  std::vector<BoundLoop> cta_loops() const;
  // Axes of threads that no loop around is bound to: all threads along those do the same.
  Names missing_threads() const;
  // Within a loop over threads that only the first of these run, along axes that nothing in it is bound to.
  void open_for_first(const Names& axes) { first_ = axes; }
  void close_for_first() { first_.clear(); }
  bool is_for_first() const { return !first_.empty(); }
  // Whether the index is proven to lie in the buffer. What threads keep for themselves is accessed at variables of
  // loops.
  bool is_inside(const std::string& buffer, const Expr& index) const;
  // Variables that the value is made of, and what their values, and those of memory that is no buffer, are made of.
  Names inputs_of(const Expr& e) const;
  // Of an element that iterations of `loops` access at `index`.
  Owner owner_of(const Expr& index, const std::vector<BoundLoop>& loops) const;
  // Of an element in all loops around that are bound to CTAs; "": it may be any.
  std::string cta_of(const Expr& index) const;

 private:
  std::string words_of(Expr place, std::vector<BoundLoop> loops) const;
  bool is_same_in_all(const Expr& e, size_t num_names) const;

  const Kernel& kernel_;
  Facts facts_;
  std::vector<BoundLoop> bound_;
  int num_repeating_ = 0;  // loops around that are bound to nothing
  size_t num_cta_nests_ = 0;
  std::vector<std::string> names_;  // of variables, outermost first
  Names first_;
  // Variables that the value of a `let` is made of, and all that was stored to memory that is no buffer.
  std::map<std::string, Names> lets_, stored_;
};

}  // namespace weft::loop
