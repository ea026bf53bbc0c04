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

// Puts elements at the coordinates that the maps say, one axis of the structure after another.
class Structuring {
 public:
  Structuring(const FormatRewriteRule& rule, const MatrixAxes& matrix, const Coordinates& left)
      : rule_(rule), left_(left) {
    for (const auto& [length, value] :
         {std::pair(matrix.num_rows, left.num_rows), std::pair(matrix.num_cols, left.num_cols)})
      if (length->op == Op::variable) numbers_.scalars[length->name] = value;
    for (const std::string& axis : rule.buffer_axes) at_[axis].reserve(left.size());
    for (size_t e = 0; e < left.size(); ++e) {
      loop::Memory at{.scalars = {{matrix.row, left.rows[e]}, {matrix.col, left.cols[e]}}};
      for (const std::string& axis : rule.buffer_axes) at_[axis].push_back(evaluate(rule.to_new.at(axis), at));
    }
    result_.taken.assign(left.size(), 1);
    place_.assign(left.size(), 0);
  }

  FormatArrays run() {
    int64_t parents = 1;
    for (const std::string& name : rule_.buffer_axes) {
      const Axis& axis =
          *std::find_if(rule_.axes.begin(), rule_.axes.end(), [&](const Axis& a) { return a.name == name; });
      const int64_t length = evaluate(axis.length, numbers_);
      check_coordinates(axis, length);
      if (axis.parent.empty()) {
        parents = length;
        place_ = at_.at(name);
      } else {
        parents = axis.is_variable ? variable(axis, parents) : fixed(axis, parents, length);
      }
    }
    return std::move(result_);
  }

 private:
  void check_coordinates(const Axis& axis, int64_t length) const {
    for (size_t e = 0; e < left_.size(); ++e) {
      const int64_t x = at_.at(axis.name)[e];
      check(x >= 0 && x < length, ErrorCode::invalid_argument,
            "format {}: the element at row {}, column {} goes to coordinate {} of axis '{}', which has {}", rule_.name,
            left_.rows[e], left_.cols[e], x, axis.name, length);
    }
  }

  // Elements that are still in, by the parent's place, then the coordinate.
  std::vector<size_t> sorted(const std::string& axis) const {
    std::vector<size_t> order;
    for (size_t e = 0; e < left_.size(); ++e)
      if (result_.taken[e] != 0) order.push_back(e);
    const auto key = [&](size_t e) { return std::pair(place_[e], at_.at(axis)[e]); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  int64_t variable(const Axis& axis, int64_t parents) {
    std::vector<int32_t> indptr(static_cast<size_t>(parents) + 1, 0), indices;
    std::pair<int64_t, int64_t> before{-1, -1};
    for (const size_t e : sorted(axis.name)) {
      const std::pair<int64_t, int64_t> here{place_[e], at_.at(axis.name)[e]};
      if (here != before) {
        indices.push_back(static_cast<int32_t>(here.second));
        ++indptr[static_cast<size_t>(here.first) + 1];
      }
      before = here;
      place_[e] = static_cast<int64_t>(indices.size()) - 1;
    }
    for (size_t p = 0; p + 1 < indptr.size(); ++p) indptr[p + 1] += indptr[p];
    const auto count = static_cast<int64_t>(indices.size());
    result_.scalars[axis.nnz->name] = count;
    result_.arrays[axis.indptr] = std::move(indptr);
    result_.arrays[axis.indices] = std::move(indices);
    return count;
  }

  int64_t fixed(const Axis& axis, int64_t parents, int64_t length) {
    const int64_t width = evaluate(axis.nnz, numbers_);
    check(parents == 0 || (width >= 1 && width <= INT32_MAX / parents), ErrorCode::invalid_argument,
          "format {}: {} rows of {} places do not fit indices of 32 bits", rule_.name, parents, width);
    std::vector<int32_t> indices(static_cast<size_t>(parents * width), static_cast<int32_t>(length));
    std::pair<int64_t, int64_t> before{-1, -1};
    int64_t filled = 0;
    for (const size_t e : sorted(axis.name)) {
      const std::pair<int64_t, int64_t> here{place_[e], at_.at(axis.name)[e]};
      if (here.first != before.first) filled = 0;
      if (here != before) ++filled;
      before = here;
      result_.taken[e] = filled <= width;
      if (filled > width) continue;  // of a longer row the first ones
      place_[e] = here.first * width + filled - 1;
      indices[static_cast<size_t>(place_[e])] = static_cast<int32_t>(here.second);
    }
    result_.arrays[axis.indices] = std::move(indices);
    return parents * width;
  }

  const FormatRewriteRule& rule_;
  const Coordinates& left_;
  loop::Memory numbers_;
  std::map<std::string, std::vector<int64_t>> at_;  // new coordinates of each element
  std::vector<int64_t> place_;                      // positions of the axis before
  FormatArrays result_;
};

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
  rule.take = [shape = rule, matrix](const Coordinates& left, bool) { return Structuring(shape, matrix, left).run(); };
  return rule;
}

}  // namespace weft::sparse
