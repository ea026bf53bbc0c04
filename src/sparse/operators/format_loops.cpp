#include "sparse/operators/format_loops.h"

#include <algorithm>

#include "base/check.h"
#include "sparse/formats/definition.h"

namespace weft::sparse {
namespace {

FormatLoops loops_over(const FormatRewriteRule& rule, const std::string& iteration) {
  FormatLoops part{.iteration = iteration + "_" + rule.name};
  const std::vector<std::string>& rows = rule.axis_map.at("I");
  bool is_stored = false;  // `elements` is a loop over what the structure stores
  for (const std::string& name : rule.buffer_axes) {
    const Axis& axis = *std::find_if(rule.axes.begin(), rule.axes.end(), [&](const Axis& a) { return a.name == name; });
    const bool is_counted = axis.is_sparse && !axis.is_variable;
    if (is_counted) loop::is_integer(axis.nnz, &part.width);
    if (loop::is_literal(is_counted ? axis.nnz : axis.length, 1)) continue;
    const bool is_of_rows = std::find(rows.begin(), rows.end(), name) != rows.end();
    const auto named = rule.iterators.find(name);
    const std::string loop = named != rule.iterators.end() ? named->second : is_of_rows ? "i" : "j";
    (part.loops.empty() ? part.has_rows_outside : part.has_rows_within) |= is_of_rows;
    part.loops.push_back(loop);
    const bool stores = axis.is_sparse || axis.is_variable;
    if (stores || !is_stored) part.elements = loop;
    is_stored |= stores;
  }
  check(!part.loops.empty(), ErrorCode::unsupported, "{}: format {} has no loop to share", iteration, rule.name);
  return part;
}

}  // namespace

std::vector<FormatLoops> loops_of_formats(const std::string& iteration, const Formats& formats) {
  const MatrixAxes matrix{
      .row = "I", .col = "J", .num_rows = loop::variable("m"), .num_cols = loop::variable("n"), .num_stored = 0};
  std::vector<FormatLoops> parts;
  for (const Format& format : formats)
    for (const FormatRewriteRule& rule : rules_of(format, matrix, {})) parts.push_back(loops_over(rule, iteration));
  return parts;
}

}  // namespace weft::sparse
