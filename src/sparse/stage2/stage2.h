// Stage II: loops over positions. Buffers still have axes; the arrays of the axes have become buffers of their own.
//
//   Stage2 stage = lower_iterations(program);
//   to_text(stage);   // for i in range(m):
//                     //   for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]: ...
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loop/facts.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// An array of an axis, accessed by positions: indptr by those of the ancestors, where the last may be one further;
// indices by theirs and its own.
struct Auxiliary {
  std::string name;
  std::string axis;
  bool is_indptr = false;
  friend bool operator==(const Auxiliary&, const Auxiliary&) = default;
};

struct Stage2 : Declarations {
  std::vector<Auxiliary> auxiliaries = {};
  Body body = {};
  const Auxiliary* find_auxiliary(std::string_view auxiliary) const;
  friend bool operator==(const Stage2&, const Stage2&) = default;
};

// Steps 1 to 3 of sparse iteration lowering (equations 3.1 to 3.5): materialises the arrays of axes, makes a nest of
// loops of each iteration, translates coordinates to positions. Throws Error(invalid_argument) where a buffer is
// written at coordinates that it cannot store; where that is not known, the run asks, and fails.
Stage2 lower_iterations(const Stage1& program);

// How many positions `axis` has below its ancestors' positions.
Expr extent_of(const Declarations& declared, const Axis& axis, const std::vector<Expr>& ancestors);
// What the values of the arrays are known to lie between, for proofs.
loop::Facts facts_of(const Declarations& declared);

void verify(const Stage2& stage);
std::string to_text(const Stage2& stage);
Stage2 parse_stage2(std::string_view text);

}  // namespace weft::sparse
