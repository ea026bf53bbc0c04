// The rules of hyb(c, k).
#include <algorithm>

#include "base/check.h"
#include "sparse/formats/rule.h"

namespace weft::sparse {
namespace {

struct Bucket {
  std::string name;
  int64_t partition, num_partitions;
  int64_t width;
  bool is_first, is_last;  // of its partition
  bool is_stack = false;   // rows of several matrices
};

// The rows of one bucket as ELL of its width, with the number of the row; in the last bucket a row is one piece or
// more.
FormatArrays take_bucket(const Bucket& bucket, const Coordinates& left) {
  const std::string rows = "I_" + bucket.name, pieces = "S_" + bucket.name, cols = "J_" + bucket.name;
  FormatArrays result{.taken = std::vector<char>(left.size(), 0)};
  const int64_t step = (left.num_cols + bucket.num_partitions - 1) / bucket.num_partitions;
  const int64_t begin = bucket.partition * step, end = begin + step;
  std::vector<int32_t> row_indices, indptr{0}, indices;
  std::vector<int32_t> outer_indptr(static_cast<size_t>(left.num_outer) + 1, 0);  // rows of each matrix of a stack
  for (size_t e = 0; e < left.size();) {
    size_t stop = e, count = 0;
    for (; stop < left.size() && left.same_row(stop, e); ++stop)
      count += left.cols[stop] >= begin && left.cols[stop] < end ? 1 : 0;
    const auto length = static_cast<int64_t>(count);
    const bool is_short = length * 2 <= bucket.width && !bucket.is_first;  // an earlier bucket's
    if (length > 0 && !is_short && (bucket.is_last || length <= bucket.width)) {
      row_indices.push_back(left.rows[e]);
      if (!left.outer.empty()) ++outer_indptr[static_cast<size_t>(left.outer[e]) + 1];
      for (size_t x = e; x < stop; ++x) {
        if (left.cols[x] < begin || left.cols[x] >= end) continue;
        indices.push_back(left.cols[x]);
        result.taken[x] = 1;
      }
      const size_t width = static_cast<size_t>(bucket.width);
      indices.resize((indices.size() + width - 1) / width * width, static_cast<int32_t>(left.num_cols));
      check(indices.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
            "hyb: bucket {} has more elements than indices of 32 bits count", bucket.name);
      indptr.push_back(static_cast<int32_t>(indices.size() / width));
    }
    e = stop;
  }
  result.scalars = {{"rows_" + bucket.name, static_cast<int64_t>(row_indices.size())}};
  if (bucket.is_last) {
    result.scalars["pieces_" + bucket.name] = indptr.back();
    result.arrays[pieces + "_indptr"] = std::move(indptr);
  }
  for (size_t r = 0; r + 1 < outer_indptr.size(); ++r) outer_indptr[r + 1] += outer_indptr[r];
  if (bucket.is_stack) result.arrays[rows + "_indptr"] = std::move(outer_indptr);
  result.arrays[rows + "_indices"] = std::move(row_indices);
  result.arrays[cols + "_indices"] = std::move(indices);
  return result;
}

// Which piece of its row an element stands in.
std::vector<int32_t> pieces_of(const Coordinates& left, const FormatArrays& stored, int64_t width) {
  std::vector<int32_t> piece(left.size(), 0);
  int64_t before = 0;  // elements of the row
  for (size_t e = 0; e < left.size(); ++e) {
    if (e > 0 && !left.same_row(e, e - 1)) before = 0;
    if (stored.taken[e] != 0) piece[e] = static_cast<int32_t>(before++ / width);
  }
  return piece;
}

}  // namespace

int64_t default_bucket(int64_t nnz, int64_t rows) {
  int64_t k = 0;
  while (k < 16 && (rows << k) < nnz) ++k;
  return k;
}

int64_t default_bucket(const Format& format, const MatrixAxes& matrix) {
  int64_t nnz = 0, rows = 0;
  check(loop::is_integer(matrix.num_stored, &nnz) && loop::is_integer(matrix.num_stored_rows, &rows),
        ErrorCode::invalid_argument,
        "'{}': its k is ceil(log2(nnz / rows)), and {} / {} is not known before there is a structure; fix these "
        "parameters (set), or write hyb(c, k)",
        to_text(format), loop::to_text(matrix.num_stored), loop::to_text(matrix.num_stored_rows));
  return default_bucket(nnz, rows);
}

std::vector<FormatRewriteRule> hyb_rules(const MatrixAxes& matrix, int64_t c, int64_t k) {
  check(c >= 1 && c <= 64, ErrorCode::invalid_argument, "hyb({}, {}): there are 1 to 64 column partitions", c, k);
  check(k >= 0 && k <= 16, ErrorCode::invalid_argument, "hyb({}, {}): k, of the longest rows 2^k, is 0 to 16", c, k);
  check(c * (k + 1) <= 512, ErrorCode::invalid_argument, "hyb({}, {}): {} buckets; at most 512 are allowed", c, k,
        c * (k + 1));
  std::vector<FormatRewriteRule> rules;
  for (int64_t p = 0; p < c; ++p)
    for (int64_t b = 0; b <= k; ++b) {
      const bool is_stack = !matrix.outer.empty();
      const Bucket bucket{fmt::format("hyb_{}_{}", p, b), p, c, int64_t{1} << b, b == 0, b == k, is_stack};
      const std::string one = "O_" + bucket.name, row = "I_" + bucket.name, piece = "S_" + bucket.name;
      const std::string col = "J_" + bucket.name, rows = "rows_" + bucket.name, pieces = "pieces_" + bucket.name;
      FormatRewriteRule rule{.name = bucket.name, .params = {rows}, .buffer_axes = {one, row, col}};
      rule.axes = {{.name = one, .length = is_stack ? matrix.num_outer : Expr(1)},
                   {.name = row,
                    .is_sparse = true,
                    .is_variable = is_stack,
                    .parent = one,
                    .length = matrix.num_rows,
                    .nnz = loop::variable(rows),
                    .indptr = is_stack ? row + "_indptr" : "",
                    .indices = row + "_indices"}};
      if (bucket.is_last) {
        rule.params.push_back(pieces);
        rule.buffer_axes = {one, row, piece, col};
        rule.axes.push_back({.name = piece,
                             .is_variable = true,
                             .parent = row,
                             .length = matrix.num_cols,
                             .nnz = loop::variable(pieces),
                             .indptr = piece + "_indptr"});
      }
      rule.axes.push_back({.name = col,
                           .is_sparse = true,
                           .parent = bucket.is_last ? piece : row,
                           .length = matrix.num_cols,
                           .nnz = bucket.width,
                           .indices = col + "_indices"});
      rule.axis_map = {{matrix.row, {row}}, {matrix.col, {col}}};
      rule.to_new = {{row, loop::variable(matrix.row)}, {col, loop::variable(matrix.col)}};
      rule.to_old = {{matrix.row, loop::variable(row)}, {matrix.col, loop::variable(col)}};
      rule.iterators = {{piece, "s"}};
      if (is_stack) {
        rule.axis_map[matrix.outer] = {one};
        rule.to_new[one] = loop::variable(matrix.outer);
        rule.to_old[matrix.outer] = loop::variable(one);
      } else {
        rule.iterators[one] = "o";
        rule.apart = row;  // a row has one length in a partition
        rule.partition = bucket.partition;
      }
      rule.take = [bucket](const Coordinates& left, bool) { return take_bucket(bucket, left); };
      if (bucket.is_last)
        rule.count = [width = bucket.width](const Coordinates& left, const FormatArrays& stored) {
          return pieces_of(left, stored, width);
        };
      rules.push_back(std::move(rule));
    }
  return rules;
}

}  // namespace weft::sparse
