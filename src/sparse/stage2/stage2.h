// Stage II: loops over positions. Buffers still have axes; the arrays of the axes have become buffers of their own.
//
//   Stage2 stage = materialise_auxiliaries(program);
//   lower_iterations(program, stage);
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
// indices by theirs and its own; rows by the place among all positions of the axis.
struct Auxiliary {
  enum class Kind : uint8_t { indptr, indices, rows };
  std::string name;
  std::string axis;
  Kind kind = Kind::indices;
  friend bool operator==(const Auxiliary&, const Auxiliary&) = default;
};

struct Stage2 : Declarations {
  std::vector<Auxiliary> auxiliaries = {};
  Body body = {};
  const Auxiliary* find_auxiliary(std::string_view auxiliary) const;
  friend bool operator==(const Stage2&, const Stage2&) = default;
};

// The first step of lowering: the arrays of axes become buffers, which hold what facts_of() says.
Stage2 materialise_auxiliaries(const Declarations& declared);
// The others (equations 3.1 to 3.5): makes a nest of loops of each iteration, translates coordinates to positions. An
// axis of one position makes no loop, unless it is `named`.
// Throws Error(invalid_argument) where a buffer is written at coordinates that it cannot store; where that is not
// known, the run asks, and fails.
void lower_iterations(const Stage1& program, Stage2& stage, const Names& named = {});

// How many positions `axis` has below its ancestors' positions.
Expr extent_of(const Declarations& declared, const Axis& axis, const std::vector<Expr>& ancestors);
// How many elements an array has, and the largest that one may be; the least is 0.
Expr length_of(const Declarations& declared, const Auxiliary& array);
Expr most_of(const Declarations& declared, const Auxiliary& array);
// The buffer axes whose equations say where an element of it lies; none for rows, whose place is that.
std::vector<std::string> axes_of(const Declarations& declared, const Auxiliary& array);
// What the values of the arrays are known to lie between, for proofs; of all, or of those of these names.
loop::Facts facts_of(const Declarations& declared);
loop::Facts facts_of(const Declarations& declared, const Names& arrays);

void verify(const Stage2& stage);
std::string to_text(const Stage2& stage);
Stage2 parse_stage2(std::string_view text);

}  // namespace weft::sparse
