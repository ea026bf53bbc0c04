// The rules of CSC, DCSR, DBSR and DIA, whose structures follow from their maps, of COO and of SR-BCRS.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "sparse/formats/rule.h"

namespace weft::sparse {
namespace {

Expr groups(const Expr& length, int64_t size) { return loop::floor_div(length + (size - 1), size); }

Axis dense(const std::string& name, const Expr& length) { return {.name = name, .length = length}; }
Axis compressed(const std::string& name, const std::string& parent, const Expr& length, const std::string& nnz) {
  return {.name = name,
          .is_sparse = true,
          .is_variable = true,
          .parent = parent,
          .length = length,
          .nnz = loop::variable(nnz),
          .indptr = name + "_indptr",
          .indices = name + "_indices"};
}
Axis fixed(const std::string& name, const std::string& parent, const Expr& length, int64_t width) {
  return {
      .name = name, .is_sparse = true, .parent = parent, .length = length, .nnz = width, .indices = name + "_indices"};
}

// New coordinates of each element, by axis.
using At = std::map<std::string, std::vector<int64_t>>;

// The structure that the elements' new coordinates make, of those that `taken` says.
template <class Coordinate, class Taken>
void take_by_maps(FormatRewriteRule& rule, const MatrixAxes& matrix, const Coordinate& coordinate, const Taken& taken) {
  rule.take = [shape = rule, matrix, coordinate, taken](const Coordinates& left, bool last) {
    At at;
    for (size_t e = 0; e < left.size(); ++e)
      for (const auto& [axis, x] : coordinate(left, e)) at[axis].push_back(x);
    return stored_at(shape, matrix, left, std::move(at), taken(left, last));
  };
}

std::vector<char> take_all_left(const Coordinates& left, bool) { return std::vector<char>(left.size(), 1); }

}  // namespace

FormatRewriteRule csc_rule(const MatrixAxes& matrix) {
  check_no_stack(matrix, "csc");
  const std::string row = "I_csc", col = "J_csc";
  FormatRewriteRule rule{.name = "csc", .params = {"nnz_csc"}, .buffer_axes = {col, row}};
  rule.axes = {dense(col, matrix.num_cols), compressed(row, col, matrix.num_rows, "nnz_csc")};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
  rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
  const auto coordinate = [=](const Coordinates& left, size_t e) {
    return std::map<std::string, int64_t>{{row, left.rows[e]}, {col, left.cols[e]}};
  };
  take_by_maps(rule, matrix, coordinate, take_all_left);
  return rule;
}

FormatRewriteRule dcsr_rule(const MatrixAxes& matrix) {
  check_no_stack(matrix, "dcsr");
  const std::string one = "O_dcsr", row = "I_dcsr", col = "J_dcsr";
  FormatRewriteRule rule{.name = "dcsr", .params = {"rows_dcsr", "nnz_dcsr"}, .buffer_axes = {one, row, col}};
  rule.axes = {dense(one, 1), compressed(row, one, matrix.num_rows, "rows_dcsr"),
               compressed(col, row, matrix.num_cols, "nnz_dcsr")};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
  rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
  rule.iterators = {{one, "o"}};
  const auto coordinate = [=](const Coordinates& left, size_t e) {
    return std::map<std::string, int64_t>{{row, left.rows[e]}, {col, left.cols[e]}};
  };
  take_by_maps(rule, matrix, coordinate, take_all_left);
  return rule;
}

FormatRewriteRule dbsr_rule(const MatrixAxes& matrix, int64_t block) {
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "dbsr({}): blocks are 1 to 256 wide", block);
  check_no_stack(matrix, "dbsr");
  const std::string name = fmt::format("dbsr_{}", block), one = "O_" + name;
  const std::string io = "IO_" + name, jo = "JO_" + name, ii = "II_" + name, ji = "JI_" + name;
  const std::string rows = "rowsb_" + name, nnz = "nnzb_" + name;
  FormatRewriteRule rule{.name = name, .params = {rows, nnz}, .buffer_axes = {one, io, jo, ii, ji}};
  rule.axes = {dense(one, 1), compressed(io, one, groups(matrix.num_rows, block), rows),
               compressed(jo, io, groups(matrix.num_cols, block), nnz), dense(ii, block), dense(ji, block)};
  map_to_blocks(rule, matrix, block, {.io = io, .jo = jo, .ii = ii, .ji = ji});
  rule.iterators[one] = "o";
  const auto coordinate = [=](const Coordinates& left, size_t e) {
    const int64_t r = left.rows[e], c = left.cols[e];
    return std::map<std::string, int64_t>{{io, r / block}, {jo, c / block}, {ii, r % block}, {ji, c % block}};
  };
  const auto taken = [block](const Coordinates& left, bool last) {
    return taken_if_full(
        left, last, [&](size_t e) { return std::pair<int64_t, int64_t>(left.rows[e] / block, left.cols[e] / block); },
        [&](const auto&) { return block * block; });
  };
  take_by_maps(rule, matrix, coordinate, taken);
  return rule;
}

FormatRewriteRule dia_rule(const MatrixAxes& matrix) {
  check_no_stack(matrix, "dia");
  const std::string one = "O_dia", diagonal = "D_dia", row = "I_dia";
  FormatRewriteRule rule{.name = "dia", .params = {"diagonals_dia"}, .buffer_axes = {one, diagonal, row}};
  // Diagonal m is the main one; those before it lie below.
  rule.axes = {dense(one, 1), compressed(diagonal, one, matrix.num_rows + matrix.num_cols, "diagonals_dia"),
               dense(row, matrix.num_rows)};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {diagonal}}};
  rule.to_new = {{diagonal, loop::variable(matrix.col) - loop::variable(matrix.row) + matrix.num_rows},
                 {row, loop::variable(matrix.row)}};
  rule.to_old = {{matrix.row, loop::variable(row)},
                 {matrix.col, loop::variable(diagonal) + loop::variable(row) - matrix.num_rows}};
  rule.iterators = {{one, "o"}, {diagonal, "d"}};
  const auto coordinate = [=](const Coordinates& left, size_t e) {
    return std::map<std::string, int64_t>{{diagonal, int64_t{left.cols[e]} - left.rows[e] + left.num_rows},
                                          {row, left.rows[e]}};
  };
  const auto taken = [](const Coordinates& left, bool last) {
    return taken_if_full(
        left, last, [&](size_t e) { return std::pair<int64_t, int64_t>(int64_t{left.cols[e]} - left.rows[e], 0); },
        [&](const auto& place) {
          return std::min(left.num_rows, left.num_cols - place.first) - std::max<int64_t>(0, -place.first);
        });
  };
  take_by_maps(rule, matrix, coordinate, taken);
  return rule;
}

FormatRewriteRule coo_rule(const MatrixAxes& matrix) {
  check_no_stack(matrix, "coo");
  const std::string element = "E_coo", row = "I_coo", col = "J_coo";
  FormatRewriteRule rule{.name = "coo", .params = {"nnz_coo"}, .buffer_axes = {element, row, col}};
  rule.axes = {dense(element, loop::variable("nnz_coo")), fixed(row, element, matrix.num_rows, 1),
               fixed(col, row, matrix.num_cols, 1)};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
  rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
  rule.iterators = {{element, "e"}};
  rule.take = [=](const Coordinates& left, bool) {
    FormatArrays result{.taken = std::vector<char>(left.size(), 1)};
    check(left.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
          "coo: {} elements do not fit indices of 32 bits", left.size());
    result.scalars = {{"nnz_coo", static_cast<int64_t>(left.size())}};
    result.arrays = {{row + "_indices", left.rows}, {col + "_indices", left.cols}};
    return result;
  };
  rule.count = [](const Coordinates& left, const FormatArrays&) {
    std::vector<int32_t> number(left.size());
    std::iota(number.begin(), number.end(), 0);
    return number;
  };
  return rule;
}

FormatRewriteRule sr_bcrs_rule(const MatrixAxes& matrix, int64_t t, int64_t g) {
  check(t >= 1 && t <= 256 && g >= 1 && g <= 4096, ErrorCode::invalid_argument,
        "sr_bcrs({}, {}): strips have 1 to 256 rows and groups 1 to 4096 tiles", t, g);
  check_no_stack(matrix, "sr_bcrs");
  const std::string name = fmt::format("sr_bcrs_{}_{}", t, g), count = "groups_" + name;
  const std::string strip = "S_" + name, group = "G_" + name, col = "J_" + name, row = "I_" + name;
  FormatRewriteRule rule{.name = name, .params = {count}, .buffer_axes = {strip, group, col, row}};
  rule.axes = {dense(strip, groups(matrix.num_rows, t)),
               {.name = group,
                .is_variable = true,
                .parent = strip,
                .length = groups(matrix.num_cols, g),
                .nnz = loop::variable(count),
                .indptr = group + "_indptr"},
               fixed(col, group, matrix.num_cols, g),
               dense(row, t)};
  rule.axis_map = {{matrix.row, {strip, row}}, {matrix.col, {col}}};
  const Expr i = loop::variable(matrix.row);
  rule.to_new = {{strip, loop::floor_div(i, t)}, {row, loop::modulo(i, t)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(strip) * t + loop::variable(row)}, {matrix.col, loop::variable(col)}};
  rule.iterators = {{strip, "s"}, {group, "g"}, {row, "ii"}};
  rule.take = [=](const Coordinates& left, bool last) {
    FormatArrays result;
    const auto tile_of = [&](size_t e) { return std::pair<int64_t, int64_t>(left.rows[e] / t, left.cols[e]); };
    result.taken = taken_if_full(left, last, tile_of, [&](const auto&) { return t; });
    std::set<std::pair<int64_t, int64_t>> tiles;
    for (size_t e = 0; e < left.size(); ++e)
      if (result.taken[e] != 0) tiles.insert(tile_of(e));
    std::vector<int32_t> indices;
    std::vector<int64_t> strip_of;  // each group's
    const auto width = static_cast<size_t>(g);
    for (auto tile = tiles.begin(); tile != tiles.end();) {
      const int64_t s = tile->first;
      for (; tile != tiles.end() && tile->first == s; ++tile) indices.push_back(static_cast<int32_t>(tile->second));
      indices.resize((indices.size() + width - 1) / width * width, static_cast<int32_t>(left.num_cols));
      check(indices.size() * static_cast<size_t>(t) <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
            "sr_bcrs({}, {}): the values do not fit indices of 32 bits", t, g);
      strip_of.resize(indices.size() / width, s);
    }
    std::vector<int32_t> indptr =
        indptr_of((left.num_rows + t - 1) / t, strip_of.size(), [&](size_t p) { return strip_of[p]; });
    result.scalars = {{count, indptr.back()}};
    result.arrays = {{group + "_indptr", std::move(indptr)}, {col + "_indices", std::move(indices)}};
    return result;
  };
  rule.count = [=](const Coordinates& left, const FormatArrays& stored) {
    const std::vector<int32_t>&indptr = stored.arrays.at(group + "_indptr"), &cols = stored.arrays.at(col + "_indices");
    std::vector<int32_t> number(left.size(), 0);
    for (size_t e = 0; e < left.size(); ++e) {
      const auto s = static_cast<size_t>(left.rows[e] / t);
      const auto first = cols.begin() + indptr[s] * g, last = cols.begin() + indptr[s + 1] * g;
      number[e] = static_cast<int32_t>((std::lower_bound(first, last, left.cols[e]) - first) / g);
    }
    return number;
  };
  return rule;
}

}  // namespace weft::sparse
