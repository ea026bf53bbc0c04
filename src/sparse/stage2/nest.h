// Finds loops and blocks for the primitives. Pointers hold until the tree is changed above them.
#pragma once

#include <string>
#include <vector>

#include "loop/regions.h"
#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// The way to a block: statements from the outermost on, and in which body each stands.
struct Nest {
  struct Level {
    Body* body = nullptr;
    size_t index = 0;
    Stmt& stmt() const { return (*body)[index]; }
  };
  std::vector<Level> path = {};
  Stmt& block() const { return path.back().stmt(); }
  std::vector<Stmt*> loops() const;
  // The place in `path` of a loop.
  size_t find(const std::string& variable) const;
  // Reduction loops around the block, except those whose variable indexes what the block writes.
  Names reductions() const;
};

// Throws Error(invalid_argument) where there is none, naming the nearest.
Nest find_block(Stage2& stage, const std::string& block);
// "csrmm.k": the way to the block, and the place of the loop in it.
struct LoopInNest {
  Nest nest = {};
  size_t place = 0;
  std::string name = {};  // "csrmm.k"
  std::string block = {}, variable = {};
  Stmt& loop() const { return nest.path[place].stmt(); }
};
LoopInNest find_loop(Stage2& stage, const std::string& name);
// Throws where something in the nest has the name already.
void check_new_name(const Stage2& stage, const Nest& nest, const std::string& name);
// Throws Error(invalid_argument) that begins with primitive and loop.
[[noreturn]] void refuse(const std::string& primitive, const std::string& loop, const std::string& why);
// Throws where the block asks whether what it writes is there, which the primitive could not do.
void check_written_surely(const std::string& primitive, const std::string& loop, const Stmt& block);
Names taken_names(const Stage2& stage);
// Extent of a loop that has to be a literal.
int64_t literal_extent(const std::string& primitive, const LoopInNest& loop);

// A buffer of which one writes elements that the other may read or write; "" where they may run in any order. No
// variable of a loop may mean one thing in `a` and another in `b`.
std::string conflict_of(const loop::Regions& a, const loop::Regions& b);

// The loops among `path[from..]` that are spatial, around what `make` gives, with the conditions among them that hold
// for any iteration of the reductions. Lets that those need are kept.
Body spatial_nest(const Nest& nest, size_t from, Body inner);

}  // namespace weft::sparse
