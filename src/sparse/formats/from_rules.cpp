// Conversions from a list of elements to the formats whose rules are a chain of axes: COO, hyb.
#include <algorithm>

#include "sparse/formats/structure.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

const Axis& axis_of(const FormatRewriteRule& rule, const std::string& name) {
  return *std::find_if(rule.axes.begin(), rule.axes.end(), [&](const Axis& axis) { return axis.name == name; });
}

// `elements`: those of the list that the format has taken, by row, then column.
Converted on_chain(const FormatRewriteRule& rule, FormatArrays stored, const std::vector<int64_t>& elements) {
  const loop::Memory numbers{.scalars = stored.scalars};
  std::vector<Level> levels;
  for (const std::string& name : rule.buffer_axes) {
    const Axis& axis = axis_of(rule, name);
    Level level{.is_sparse = axis.is_sparse, .is_variable = axis.is_variable};
    level.length = evaluate(axis.length, numbers);
    if (!axis.is_variable && !axis.parent.empty()) level.per_parent = evaluate(axis.nnz, numbers);
    if (axis.is_variable) level.indptr = std::move(stored.arrays.at(axis.indptr));
    if (axis.is_sparse) level.indices = std::move(stored.arrays.at(axis.indices));
    levels.push_back(std::move(level));
  }
  Converted result{.structure = make_structure(std::move(levels))};
  const Level& last = result.structure.data()->levels.back();
  auto element = elements.begin();
  for (const int32_t index : last.indices) result.order.push_back(index == last.length ? -1 : *element++);
  return result;
}

std::vector<Converted> by_rules(const Coo& coo, const std::vector<FormatRewriteRule>& rules) {
  std::vector<int64_t> left = sorted_order(coo);
  Coordinates at{.num_rows = coo.num_rows, .num_cols = coo.num_cols};
  for (const int64_t e : left) {
    at.rows.push_back(coo.rows[static_cast<size_t>(e)]);
    at.cols.push_back(coo.cols[static_cast<size_t>(e)]);
  }
  std::vector<Converted> results;
  for (FormatArrays& stored : take_all(rules, std::move(at))) {
    std::vector<int64_t> taken, rest;
    for (size_t e = 0; e < left.size(); ++e) (stored.taken[e] != 0 ? taken : rest).push_back(left[e]);
    left = std::move(rest);
    results.push_back(on_chain(rules[results.size()], std::move(stored), taken));
  }
  return results;
}

MatrixAxes axes_of(const Coo& coo) {
  return {.row = "I", .col = "J", .num_rows = coo.num_rows, .num_cols = coo.num_cols};
}

}  // namespace

Converted coo_from_coo(const Coo& coo) { return by_rules(coo, {coo_rule(axes_of(coo))})[0]; }

std::vector<Converted> hyb_from_coo(const Coo& coo, int64_t c, int64_t k) {
  return by_rules(coo, hyb_rules(axes_of(coo), c, k));
}

Converted ragged_from_coo(const Coo& coo) {
  Converted rows = csr_from_coo(coo);
  rows.structure = ragged(coo.num_rows, coo.num_cols, rows.structure.data()->levels[1].indptr);
  return rows;
}

}  // namespace weft::sparse
