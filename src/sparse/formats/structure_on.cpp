#include "sparse/formats/structure_on.h"

#include <algorithm>

#include "base/check.h"
#include "sparse/formats/structure.h"

namespace weft::sparse {
namespace {

// Lengths of the axes that follow the chain in a buffer, where they are literals: those of blocks.
std::vector<int64_t> literals_behind(const Declarations& program, const std::vector<std::string>& chain) {
  for (const SparseBuffer& buffer : program.buffers) {
    const auto at = std::search(buffer.axes.begin(), buffer.axes.end(), chain.begin(), chain.end());
    if (at == buffer.axes.end()) continue;
    std::vector<int64_t> lengths;
    for (auto axis = at + static_cast<std::ptrdiff_t>(chain.size()); axis != buffer.axes.end(); ++axis) {
      int64_t length = 0;
      if (!program.axis(*axis).parent.empty() || !loop::is_integer(program.axis(*axis).length, &length)) break;
      lengths.push_back(length);
    }
    if (!lengths.empty()) return lengths;
  }
  return {};
}

// As wide as the axis says, where it says.
Converted ell_of_width(const Axis& axis, const Coo& coo) {
  Converted longest = ell_from_coo(coo);
  const Level& level = longest.structure.data()->levels[1];
  int64_t width = 0;
  if (!loop::is_integer(axis.nnz, &width) || width == level.per_parent) return longest;
  check(width > level.per_parent, ErrorCode::invalid_argument,
        "axis '{}' has {} places a row, and the longest row {} elements; write a wider one, or a parameter", axis.name,
        width, level.per_parent);
  check(coo.num_rows == 0 || width <= INT32_MAX / coo.num_rows, ErrorCode::invalid_argument,
        "axis '{}': {} rows of {} places do not fit indices of 32 bits", axis.name, coo.num_rows, width);
  const auto size = static_cast<size_t>(coo.num_rows * width);
  std::vector<int32_t> indices(size, static_cast<int32_t>(coo.num_cols));
  std::vector<int64_t> order(size, -1);
  for (int64_t row = 0; row < coo.num_rows; ++row) {
    std::copy_n(level.indices.begin() + row * level.per_parent, level.per_parent, indices.begin() + row * width);
    std::copy_n(longest.order.begin() + row * level.per_parent, level.per_parent, order.begin() + row * width);
  }
  return {ell(coo.num_rows, coo.num_cols, width, indices), std::move(order)};
}

}  // namespace

Converted converted_on(const Declarations& program, const std::string& axis, const Coo& coo) {
  std::vector<std::string> chain = program.ancestors(axis);
  chain.push_back(axis);
  std::string kinds;  // of the axes below the root: d or s, f or v
  for (size_t a = 1; a < chain.size(); ++a) {
    const Axis& one = program.axis(chain[a]);
    kinds += one.is_sparse ? (one.is_variable ? "sv " : "sf ") : (one.is_variable ? "dv " : "df ");
  }
  const std::vector<int64_t> behind = literals_behind(program, chain);
  const bool in_blocks = behind.size() == 2 && behind[0] == behind[1];
  if (kinds == "sv ") return in_blocks ? bsr_from_coo(coo, behind[0]) : csr_from_coo(coo);
  if (kinds == "sv sv ") return in_blocks ? dbsr_from_coo(coo, behind[0]) : dcsr_from_coo(coo);
  if (kinds == "sf ") return ell_of_width(program.axis(axis), coo);
  if (kinds == "dv ") return ragged_from_coo(coo);
  int64_t group = 0;
  if (kinds == "dv sf " && behind.size() == 1 && loop::is_integer(program.axis(axis).nnz, &group))
    return sr_bcrs_from_coo(coo, behind[0], group);
  fail(ErrorCode::unsupported,
       "axis '{}': required: axes that a matrix fills; supported: CSR, ELL, BSR, DCSR, DBSR, SR-BCRS and rows of any "
       "length; others are made of CSR by decompose_format, or given by their arrays: structure_of, or --structure",
       axis);
}

Coo coordinates_at(const Structure& structure) {
  const std::vector<Level>& all = data_of(structure, "structure").levels;
  const bool below_one = all.size() == 3 && all[0].length == 1;
  check(all.size() == 2 || below_one, ErrorCode::unsupported,
        "structure: required: the axes of a matrix; supported: rows and columns, and both below an axis of one; this "
        "one has {} axes",
        all.size());
  const Level& cols = all.back();
  Coo coo{.num_rows = all[all.size() - 2].length, .num_cols = cols.length};
  const int64_t parents = all[all.size() - 2].num_positions;
  for (int64_t parent = 0; parent < parents; ++parent) {
    const auto row = static_cast<size_t>(parent);
    const int64_t begin = cols.is_variable ? cols.indptr[row] : parent * cols.per_parent;
    const int64_t end = cols.is_variable ? cols.indptr[row + 1] : begin + cols.per_parent;
    for (int64_t p = begin; p < end; ++p) {
      const int64_t col = cols.is_sparse ? cols.indices[static_cast<size_t>(p)] : p - begin;
      const bool is_padding = col >= cols.length;
      coo.rows.push_back(below_one && all[1].is_sparse ? all[1].indices[row] : static_cast<int32_t>(parent));
      coo.cols.push_back(is_padding ? -1 : static_cast<int32_t>(col));
    }
  }
  return coo;
}

}  // namespace weft::sparse
