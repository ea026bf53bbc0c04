#include "sparse/formats/definition.h"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/check.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::string problem_of(const FormatDefinition& d) {
  if (d.old_axes.size() != 2) return fmt::format("it is of {} axes; a matrix has two", d.old_axes.size());
  if (d.buffer_axes.empty()) return "its buffer is missing; write buffer(AXIS, ...)";
  const SparseBuffer buffer{.name = d.name + " buffer", .axes = d.buffer_axes};
  Declarations without = d.declared;
  without.buffers.clear();
  if (std::string problem = problem_of(without, buffer); !problem.empty()) return problem;
  for (const Axis& axis : d.declared.axes) {
    if (!contains(d.buffer_axes, axis.name)) return fmt::format("its buffer does not have axis '{}'", axis.name);
    if (axis.is_variable && !axis.is_sparse)
      return fmt::format("axis '{}' is dense and variable; what it stores does not follow from coordinates", axis.name);
    if (axis.is_variable && (axis.nnz->op != Op::variable || !contains(d.new_params, axis.nnz->name)))
      return fmt::format("the number of positions of axis '{}' is {}; name a new parameter of 'with'", axis.name,
                         loop::to_text(axis.nnz));
    if (!d.to_new.contains(axis.name)) return fmt::format("'to' says nothing of axis '{}'", axis.name);
  }
  for (const std::string& axis : d.old_axes)
    if (!d.to_old.contains(axis)) return fmt::format("'from' says nothing of axis '{}'", axis);
  return {};
}

FormatRewriteRule rule_of(const FormatDefinition& d, const MatrixAxes& matrix) {
  check_no_stack(matrix, d.name);
  FormatRewriteRule rule{.name = d.name, .params = d.new_params, .axes = d.declared.axes, .buffer_axes = d.buffer_axes};
  for (const Axis& axis : rule.axes)
    for (const Expr& size : {axis.length, axis.is_variable || !axis.nnz ? Expr(0) : axis.nnz})
      for (const std::string& used : loop::variables_of(size))
        check(loop::is_variable(matrix.num_rows, used) || loop::is_variable(matrix.num_cols, used),
              ErrorCode::unsupported, "format {}: axis '{}' is {} long; required: literals and the matrix' own extents",
              d.name, axis.name, loop::to_text(size));
  const Substitution old{{d.old_axes[0], loop::variable(matrix.row)}, {d.old_axes[1], loop::variable(matrix.col)}};
  for (const std::string& axis : d.buffer_axes)
    std::transform(axis.begin(), axis.end(), std::back_inserter(rule.iterators[axis]),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const auto& [axis, map] : d.to_new) rule.to_new[axis] = loop::substitute(map, old);
  for (size_t a = 0; a < 2; ++a) {
    const std::string& axis = a == 0 ? matrix.row : matrix.col;
    const Expr& map = d.to_old.at(d.old_axes[a]);
    rule.to_old[axis] = map;
    for (const std::string& part : d.buffer_axes)
      if (loop::uses(map, part)) rule.axis_map[axis].push_back(part);
  }
  // By value: the rule outlives this one, and its copies each other.
  rule.take = [shape = rule, matrix](const Coordinates& left, bool) {
    std::map<std::string, std::vector<int64_t>> at;
    Evaluator here;
    for (size_t e = 0; e < left.size(); ++e) {
      here.set(matrix.row, left.rows[e]);
      here.set(matrix.col, left.cols[e]);
      for (const std::string& axis : shape.buffer_axes) at[axis].push_back(here(shape.to_new.at(axis)));
    }
    return stored_at(shape, matrix, left, std::move(at), std::vector<char>(left.size(), 1));
  };
  return rule;
}

std::vector<FormatRewriteRule> rules_of(const Format& format, const MatrixAxes& matrix,
                                        const std::vector<FormatDefinition>& defined) {
  const auto number = [&](size_t i) { return format.numbers.at(i); };
  switch (format.kind) {
    case Format::Kind::csr: return {csr_rule(matrix)};
    case Format::Kind::csc: return {csc_rule(matrix)};
    case Format::Kind::coo: return {coo_rule(matrix)};
    case Format::Kind::dcsr: return {dcsr_rule(matrix)};
    case Format::Kind::dia: return {dia_rule(matrix)};
    case Format::Kind::ell: return {ell_rule(matrix, number(0))};
    case Format::Kind::bsr: return {bsr_rule(matrix, number(0))};
    case Format::Kind::dbsr: return {dbsr_rule(matrix, number(0))};
    case Format::Kind::sr_bcrs: return {sr_bcrs_rule(matrix, number(0), number(1))};
    case Format::Kind::hyb:
      return hyb_rules(matrix, number(0), format.numbers.size() > 1 ? number(1) : default_bucket(format, matrix));
    case Format::Kind::defined: break;
  }
  const auto found =
      std::find_if(defined.begin(), defined.end(), [&](const FormatDefinition& d) { return d.name == format.name; });
  ensure(found != defined.end(), "format '{}' is not defined", format.name);
  return {rule_of(*found, matrix)};
}

}  // namespace weft::sparse
