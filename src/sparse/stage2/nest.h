// Finds loops and blocks for the primitives. Pointers hold until the tree is changed above them.
#pragma once

#include <string>
#include <vector>

#include "sparse/stage2/dependence.h"
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
  // What stands around path[place].
  Around around(size_t place) const;
  // Reduction loops around the block, except those that other blocks reduce over and this one's init is written at.
  Names reductions() const;
  // The expression, as it is within the block, without what `let` names around it.
  Expr without_lets(const Expr& e) const;
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
// Throws where the block asks whether what it writes, or what it writes to `buffer`, is there, which the primitive
// could not do.
void check_written_surely(const std::string& primitive, const std::string& loop, const Stmt& block,
                          const std::string& buffer = {});
// Memory that begins in the statements, or in what stands within them, and that `moved` accesses; "": none.
std::string memory_needed(const Body& statements, const Body& moved);
// Throws Error(unsupported) where `moved`, which is to run around path[place], needs memory that is kept within it.
void check_memory_around(const Nest& nest, size_t place, const Body& moved);
Names taken_names(const Stage2& stage);
// Extent of a loop that has to be a literal.
int64_t literal_extent(const std::string& primitive, const LoopInNest& loop);

// Whether it loads elements, which has to be where conditions hold that keep those inside of their buffers.
bool loads_anything(const Expr& e);
Names names_in(const Expr& e);  // variables and buffers
bool have_common(const Names& a, const Names& b);

// The loops among `path[from..]` that are spatial, around `inner`, with the conditions among them that hold for any
// iteration of the reductions. Lets that those need are kept. What init does it does also where conditions that depend
// on reductions hold nowhere; anything else is refused where such a condition may be what keeps its accesses inside.
enum class Inner : uint8_t { init, copy };
Body spatial_nest(const Stage2& stage, const Nest& nest, size_t from, Body inner, Inner kind);

}  // namespace weft::sparse
