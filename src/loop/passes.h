// Passes over a function of flat loops, in the order in which sparse/compile.cpp runs them. Each leaves a function that
// passes verify() and computes the same.
#pragma once

#include <array>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

// Shortest arithmetic; conditions that are proven, loops that run once, and what never runs, left out; conditions moved
// out of the loops that they do not depend on.
void simplify(Function& function);

// Loops with a condition like `outer * 16 + inner < n` become a loop where it holds and a rest where it is asked. A
// loop over CTAs whose threads add up sums together, and ask such conditions for each, has its body twice: for CTAs in
// which all of them hold, and for others.
void peel_tails(Function& function);

// Marks loops that meet none of those right before them, so that nobody waits between (horizontal fusion): no element
// is written by one and accessed by the other, because buffers differ, because sums are atomic, or because arrays that
// are apart say where. Parallel loops, and nests bound to blockIdx.x whose numbers of CTAs the launch knows and whose
// threads lie alike: on a card these are one kernel, side by side.
void join_phases(Function& function);

// Throws Error(invalid_argument) where an access of a function's buffer provably lies outside. Returns how many
// accesses are proven to lie inside, of how many; the others rest on checks of the structures.
struct BoundsReport {
  int proven = 0, total = 0;
  std::vector<std::string> others = {};  // as text
};
BoundsReport check_bounds(const Function& function);

// What is started at once: a nest whose outermost loop is parallel or bound, with those that are joined to it, or
// statements between two of them, which one worker runs. On a GPU each is a kernel; on the CPU the team waits between
// any two.
struct Phase {
  Body body;
  std::array<int, 3> threads = {};  // of a CTA of every launch on a card, along x, y and z; 0: any number
  const Stmt* parallel() const;     // the first outermost loop, if that is a parallel one; else null
  bool is_side_by_side() const;     // several nests, each with CTAs of its own along blockIdx.x
};
std::vector<Phase> split_phases(const Function& function);

// What stands behind the last statement that accesses the memory body[memory], or memory that begins before that one:
// all of it is in one phase.
size_t end_of_memory(const Body& body, size_t memory);

// A function, and what is started of it one after another. Names that targets have other uses for are others here
// (codegen/names.h).
struct Launches {
  Function function;
  std::vector<Phase> phases;
};
Launches split_launches(const Function& function);

}  // namespace weft::loop
