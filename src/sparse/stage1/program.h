// Stage I: what is computed, in coordinates. Axes say how a tensor is stored, buffers hold values on axes, iterations
// compute at every coordinate that their axes store.
//
//   Stage1 spmm = parse_program(text).stage1;      // stage1/parse.h
//   verify(spmm);
//   to_text(spmm);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loop/ir.h"

namespace weft::sparse {

using loop::Body;
using loop::Expr;
using loop::Names;
using loop::Op;
using loop::Stmt;
using loop::Substitution;
using loop::Type;

// Stored coordinates of one dimension. Dense: 0, 1, 2, ... without gaps; sparse: those in `indices`. Fixed: as many
// below every position of the parent; variable: as many as `indptr` says. An axis without parent is dense and fixed.
struct Axis {
  std::string name = {};
  bool is_sparse = false;
  bool is_variable = false;
  std::string parent = {};
  Expr length = {};  // coordinates are below it
  Expr nnz = {};     // variable: of all positions; fixed with a parent: below each position of it (nnz_cols)
  std::string indptr = {}, indices = {};
  std::string rows = {};  // of a variable one, may be: for each of all positions, which of the parent's it lies below
  DType index_type = DType::int32;
  friend bool operator==(const Axis&, const Axis&) = default;
};

// Values on axes, stored in the order of their positions; the structure belongs to the axes. A temporary one is the
// program's own: nobody gives it, nobody sees it, and it begins with anything.
struct SparseBuffer {
  std::string name = {};
  std::vector<std::string> axes = {};
  DType dtype = DType::fp32;
  bool temporary = false;
  friend bool operator==(const SparseBuffer&, const SparseBuffer&) = default;
};

// What the stages I and II declare alike.
struct Declarations {
  std::string name = {};
  std::vector<std::string> params = {};  // integers, 0 or more
  std::vector<std::string> reals = {};   // real parameters
  std::vector<Axis> axes = {};
  std::vector<SparseBuffer> buffers = {};
  // Lists of sparse axes: no coordinate is stored on two of a list. What makes the structures promises it.
  std::vector<std::vector<std::string>> apart = {};

  const Axis* find_axis(std::string_view axis) const;
  const Axis& axis(std::string_view axis) const;  // InternalError where it is not there
  const SparseBuffer* find_buffer(std::string_view buffer) const;
  const SparseBuffer& buffer(std::string_view buffer) const;
  // From the root to the parent.
  std::vector<std::string> ancestors(std::string_view axis) const;
  // How many positions the axis has below all of its parent's.
  Expr num_positions(std::string_view axis) const;
  // The axis whose indptr or indices have that name; null where there is none.
  const Axis* axis_of_indptr(std::string_view name) const;
  const Axis* axis_of_indices(std::string_view name) const;
  Names all_names() const;
  bool declares(std::string_view name) const;  // one of them
  friend bool operator==(const Declarations&, const Declarations&) = default;
};

// Where the text says it; 0: in no text. What is said is the same wherever it stands.
struct TextPlace {
  int line = 0, column = 0;
  std::string iteration = {};  // of one that a primitive makes of init, or to gather results: the one of the program
  friend bool operator==(const TextPlace&, const TextPlace&) { return true; }
};

// One nest over axes. Indices in `init` and `body` are coordinates.
struct Iteration {
  std::string name = {};
  std::vector<std::vector<std::string>> axes = {};  // more than one in a group: fused
  std::string kinds = {};                           // an 'S' (spatial) or 'R' (reduction) for each axis
  std::vector<std::string> iterators = {};          // a name for each axis
  Body init = {};                                   // stores
  Body body = {};                                   // stores
  std::vector<Expr> where = {};                     // computes only where they hold
  bool preprocess = false;                          // depends on structures and values alone that stay: runs once
  // The iterations that it stands within, outermost first; theirs are the first of `axes`. Those within one stand one
  // after another, and run so at each of its points.
  struct Around {
    std::string name = {};
    size_t num_axes = 0;
    friend bool operator==(const Around&, const Around&) = default;
  };
  std::vector<Around> around = {};
  size_t num_shared_axes() const { return around.empty() ? 0 : around.back().num_axes; }
  TextPlace place = {};
  std::vector<std::string> flat_axes() const;
  // The iteration of the program that errors name.
  const std::string& name_in_errors() const { return place.iteration.empty() ? name : place.iteration; }
  friend bool operator==(const Iteration&, const Iteration&) = default;
};

struct Stage1 : Declarations {
  std::vector<Iteration> iterations = {};
  const Iteration* find_iteration(std::string_view iteration) const;
  friend bool operator==(const Stage1&, const Stage1&) = default;
};

// How many of the iterations around them two have in common.
size_t num_common(const Iteration& a, const Iteration& b);
// Why axes and format of an iteration within another stay: "" where it is no such.
std::string problem_of_nest(const Iteration& iteration);
// Throws Error(invalid_argument) naming what breaks the language's rules: parents before children, names declared once,
// spatial iterators that say where is written and reduction iterators that don't, ...
void verify(const Stage1& program);
// The same of one more axis or buffer, which is not in the program yet; nothing where it keeps the rules.
std::string problem_of(const Declarations& declared, const Axis& axis);
bool has_one_position(const Axis& axis);  // a root of length 1
std::string problem_of(const Declarations& declared, const SparseBuffer& buffer);
std::string problem_of(const Declarations& declared, const Iteration& iteration);
std::string problem_of_apart(const Declarations& declared, const std::vector<std::string>& axes);
std::string problem_of_axes(const Declarations& declared, const Iteration& iteration);  // of its head alone

// Whether it divides by the literal 0.
bool divides_by_zero(const Expr& e);

std::string to_text(const Stage1& program);
std::string to_text(const Axis& axis);
std::string to_text(const SparseBuffer& buffer);
std::string text_of_apart(const Declarations& declared);

}  // namespace weft::sparse
