// The rules of CSR, ELL and BSR.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "sparse/formats/rule.h"

namespace weft::sparse {
namespace {

int32_t count32(size_t count, const std::string& what) {
  check(count <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
        "{}: {} elements do not fit indices of 32 bits", what, count);
  return static_cast<int32_t>(count);
}

}  // namespace

FormatRewriteRule csr_rule(const MatrixAxes& matrix) {
  check_no_stack(matrix, "csr");
  const std::string name = "csr", row = "I_csr", col = "J_csr";
  FormatRewriteRule rule{.name = name, .params = {"nnz_csr"}, .buffer_axes = {row, col}};
  rule.axes = {{.name = row, .length = matrix.num_rows},
               {.name = col,
                .is_sparse = true,
                .is_variable = true,
                .parent = row,
                .length = matrix.num_cols,
                .nnz = loop::variable("nnz_csr"),
                .indptr = "J_csr_indptr",
                .indices = "J_csr_indices"}};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
  rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
  rule.take = [](const Coordinates& left, bool) {
    FormatArrays result{.taken = std::vector<char>(left.size(), 1)};
    count32(left.size(), "csr");
    std::vector<int32_t> indptr = indptr_of(left.num_rows, left.size(), [&](size_t e) { return left.rows[e]; });
    result.arrays = {{"J_csr_indptr", std::move(indptr)}, {"J_csr_indices", left.cols}};
    result.scalars = {{"nnz_csr", static_cast<int64_t>(left.size())}};
    return result;
  };
  return rule;
}

FormatRewriteRule ell_rule(const MatrixAxes& matrix, int64_t width) {
  check(width >= 1 && width <= 1 << 20, ErrorCode::invalid_argument, "ell({}): the columns of a row are 1 to {}", width,
        1 << 20);
  check_no_stack(matrix, "ell");
  const std::string name = fmt::format("ell_{}", width), row = "I_" + name, col = "J_" + name;
  FormatRewriteRule rule{.name = name, .buffer_axes = {row, col}};
  rule.axes = {{.name = row, .length = matrix.num_rows},
               {.name = col,
                .is_sparse = true,
                .parent = row,
                .length = matrix.num_cols,
                .nnz = width,
                .indices = col + "_indices"}};
  rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
  rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
  rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
  rule.take = [=](const Coordinates& left, bool) {
    FormatArrays result{.taken = std::vector<char>(left.size(), 0)};
    check(left.num_rows == 0 || width <= INT32_MAX / left.num_rows, ErrorCode::invalid_argument,
          "ell({}): {} rows of it do not fit indices of 32 bits", width, left.num_rows);
    // Padding: the number of columns, behind the row's own.
    std::vector<int32_t> indices(static_cast<size_t>(left.num_rows * width), static_cast<int32_t>(left.num_cols));
    int64_t filled = 0;
    for (size_t e = 0; e < left.size(); ++e) {
      if (e == 0 || left.rows[e] != left.rows[e - 1]) filled = 0;
      if (filled == width) continue;  // of a longer row the first ones
      indices[static_cast<size_t>(left.rows[e] * width + filled++)] = left.cols[e];
      result.taken[e] = 1;
    }
    result.arrays = {{"J_" + name + "_indices", std::move(indices)}};
    return result;
  };
  return rule;
}

FormatRewriteRule bsr_rule(const MatrixAxes& matrix, int64_t block) {
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "bsr({}): blocks are 1 to 256 wide", block);
  check_no_stack(matrix, "bsr");
  const std::string name = fmt::format("bsr_{}", block);
  const std::string io = "IO_" + name, jo = "JO_" + name, ii = "II_" + name, ji = "JI_" + name, nnzb = "nnzb_" + name;
  const auto blocks = [&](const Expr& length) { return loop::floor_div(length + (block - 1), block); };
  FormatRewriteRule rule{.name = name, .params = {nnzb}, .buffer_axes = {io, jo, ii, ji}};
  rule.axes = {{.name = io, .length = blocks(matrix.num_rows)},
               {.name = jo,
                .is_sparse = true,
                .is_variable = true,
                .parent = io,
                .length = blocks(matrix.num_cols),
                .nnz = loop::variable(nnzb),
                .indptr = jo + "_indptr",
                .indices = jo + "_indices"},
               {.name = ii, .length = block},
               {.name = ji, .length = block}};
  map_to_blocks(rule, matrix, block, {.io = io, .jo = jo, .ii = ii, .ji = ji});
  // Alone, or last, every block that holds something; before other formats those that are half full.
  rule.take = [=](const Coordinates& left, bool last) {
    FormatArrays result{.taken = std::vector<char>(left.size(), 0)};
    std::map<std::pair<int64_t, int64_t>, int64_t> filled;
    for (size_t e = 0; e < left.size(); ++e) ++filled[{left.rows[e] / block, left.cols[e] / block}];
    std::vector<int32_t> indices;
    std::vector<int64_t> rows;  // each block's
    for (const auto& [place, count] : filled) {
      if (!last && 2 * count < block * block) continue;
      indices.push_back(static_cast<int32_t>(place.second));
      rows.push_back(place.first);
    }
    count32(indices.size() * static_cast<size_t>(block * block), name);
    std::vector<int32_t> indptr =
        indptr_of((left.num_rows + block - 1) / block, rows.size(), [&](size_t p) { return rows[p]; });
    for (size_t e = 0; e < left.size(); ++e)
      result.taken[e] = last || 2 * filled[{left.rows[e] / block, left.cols[e] / block}] >= block * block;
    result.scalars = {{nnzb, static_cast<int64_t>(indices.size())}};
    result.arrays = {{jo + "_indptr", std::move(indptr)}, {jo + "_indices", std::move(indices)}};
    return result;
  };
  return rule;
}

}  // namespace weft::sparse
