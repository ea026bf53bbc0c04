// How a matrix is stored otherwise: what decompose_format needs to know of a format.
//
//   FormatRewriteRule{.name = "ell_2", .params = ..., .axes = {I2, J2}, .buffer_axes = {"I2", "J2"},
//                     .axis_map = {{"I", {"I2"}}, {"J", {"J2"}}}, .to_new = {{"I2", i}, {"J2", j}},
//                     .to_old = {{"I", i2}, {"J", j2}}, .take = ...};
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sparse/formats/format.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// Where elements stand in a matrix, sorted by row, then column, none twice. Of a stack of matrices, a relation each,
// `outer` says which one, and elements are sorted by it first.
struct Coordinates {
  int64_t num_rows = 0, num_cols = 0;
  std::vector<int32_t> rows = {}, cols = {};
  int64_t num_outer = 0;
  std::vector<int32_t> outer = {};  // empty: one matrix
  bool same_row(size_t a, size_t b) const { return rows[a] == rows[b] && (outer.empty() || outer[a] == outer[b]); }
  size_t size() const { return rows.size(); }
};

// What a format's axes need for some elements: arrays by name, parameters by name, and which elements they are.
struct FormatArrays {
  std::map<std::string, std::vector<int32_t>> arrays = {};
  std::map<std::string, int64_t> scalars = {};
  std::vector<char> taken = {};  // of each coordinate that was offered
};

struct FormatRewriteRule {
  std::string name = {};
  std::vector<std::string> params = {};  // new ones
  std::vector<Axis> axes = {};
  std::vector<std::string> buffer_axes = {};                      // of the new buffer, in order
  std::map<std::string, std::vector<std::string>> axis_map = {};  // old axis -> new axes; those of none count places
  std::map<std::string, Expr> to_new = {};                        // f: each new axis, of the old axes' names
  std::map<std::string, Expr> to_old = {};                        // its inverse: each old axis, of the new axes' names
  std::map<std::string, std::string> iterators = {};              // what the new axes' iterators are called
  // An axis whose coordinates are in no other rule's of the same decomposition that says the same of this partition.
  std::string apart = {};
  int64_t partition = 0;
  // Claims elements that no earlier format claimed. `last`: must try to claim every one.
  std::function<FormatArrays(const Coordinates& left, bool last)> take = {};
  // Only for formats with a counting axis (coo, sr_bcrs, hyb's last bucket): each claimed element's coordinate on it.
  // Unspecified for the rest.
  std::function<std::vector<int32_t>(const Coordinates& left, const FormatArrays& stored)> count = {};
};

// An indptr over `num_rows` rows of `count` positions, which stand in rows `row_of(p)` that never fall. Rows that hold
// nothing are filled in, not gone through: there may be 2^31 of them.
template <class RowOf>
std::vector<int32_t> indptr_of(int64_t num_rows, size_t count, const RowOf& row_of) {
  std::vector<int32_t> indptr;
  indptr.reserve(static_cast<size_t>(num_rows) + 1);
  for (size_t p = 0; p < count; ++p) indptr.resize(static_cast<size_t>(row_of(p)) + 1, static_cast<int32_t>(p));
  indptr.resize(static_cast<size_t>(num_rows) + 1, static_cast<int32_t>(count));
  return indptr;
}

// Throws Error(invalid_argument) where f and its inverse are not inverse to each other, on a grid of coordinates.
void check_inverse(const FormatRewriteRule& rule, const std::vector<std::string>& old_axes);

// What the rule declares: parameters, axes and their arrays.
Names declared_names(const FormatRewriteRule& rule);
// The same rule with `suffix` behind each of those names and its own, for a program that has some of them already.
FormatRewriteRule with_suffix(const FormatRewriteRule& rule, const std::string& suffix);

// Whether the format may store places of no element: blocks and diagonals do, rows do not.
bool stores_zeros(const FormatRewriteRule& rule);
// Axes of the format that only count places, as the pieces of long rows do; "" where coordinates tell all of them.
std::string counting_axis(const FormatRewriteRule& rule);
// What tells the place on such an axis: an array over the elements of the matrix, 1 + the coordinate there, 0 where
// another format stores the element.
std::string places_of(const std::string& axis);

// The rules of all formats together: runs them in order. Throws Error(invalid_argument) naming an element that none
// takes, or that several store. `wanted`: the arrays of places to be made, too.
std::vector<FormatArrays> take_all(const std::vector<FormatRewriteRule>& rules, Coordinates coordinates,
                                   const Names& wanted = {});

// The named formats, for a matrix on axes `row` and `col` of lengths `num_rows` and `num_cols`; of a stack of them
// below the dense axis `outer` (3-D hyb).
struct MatrixAxes {
  std::string row, col;
  Expr num_rows, num_cols;
  std::string outer = {};
  Expr num_outer = {};
  Expr num_stored = {}, num_stored_rows = {};  // elements, and rows they stand in; what hyb(c) asks
};
// What the rule's axes store of elements that are taken, each at the new coordinates `at` by axis; 0 of an axis that is
// not named. A sparse_fixed axis takes the first of a row. Throws Error(invalid_argument) for one beyond its axis.
FormatArrays stored_at(const FormatRewriteRule& rule, const MatrixAxes& matrix, const Coordinates& left,
                       std::map<std::string, std::vector<int64_t>> at, std::vector<char> taken);

// Maps rows and columns to blocks and places within them, and names the iterators of these axes.
struct BlockAxes {
  std::string io, jo, ii, ji;
};
void map_to_blocks(FormatRewriteRule& rule, const MatrixAxes& matrix, int64_t block, const BlockAxes& axes);

// Throws Error(unsupported) for a stack.
void check_no_stack(const MatrixAxes& matrix, const std::string& format);
FormatRewriteRule csr_rule(const MatrixAxes& matrix);
FormatRewriteRule ell_rule(const MatrixAxes& matrix, int64_t width);
FormatRewriteRule bsr_rule(const MatrixAxes& matrix, int64_t block);
FormatRewriteRule csc_rule(const MatrixAxes& matrix);                  // columns, below each its rows
FormatRewriteRule coo_rule(const MatrixAxes& matrix);                  // a list of elements
FormatRewriteRule dcsr_rule(const MatrixAxes& matrix);                 // rows that hold something; CSF of a matrix
FormatRewriteRule dbsr_rule(const MatrixAxes& matrix, int64_t block);  // block rows that hold something
// Strips of t rows, below each the columns that hold something, in groups of g.
FormatRewriteRule sr_bcrs_rule(const MatrixAxes& matrix, int64_t t, int64_t g);
FormatRewriteRule dia_rule(const MatrixAxes& matrix);  // diagonals that hold something
// Alone, or last, a format of blocks, tiles or diagonals takes every one that holds something; before other formats
// those that are half full: `place` of an element, `size` of a place.
std::vector<char> taken_if_full(const Coordinates& left, bool last,
                                const std::function<std::pair<int64_t, int64_t>(size_t element)>& place,
                                const std::function<int64_t(const std::pair<int64_t, int64_t>& place)>& size);
// c column partitions of equal width, each with k + 1 buckets of rows: bucket i has those of a length in (2^(i-1),
// 2^i], the last also longer ones, in pieces of 2^k.
std::vector<FormatRewriteRule> hyb_rules(const MatrixAxes& matrix, int64_t c, int64_t k);
// The k of hyb(c): ceil(log2(nnz / rows)), at most 16.
int64_t default_bucket(int64_t nnz, int64_t rows);
// The same of a matrix whose size fixed parameters tell; throws Error(invalid_argument) naming the format otherwise.
int64_t default_bucket(const Format& format, const MatrixAxes& matrix);

}  // namespace weft::sparse
