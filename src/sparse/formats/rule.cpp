#include "sparse/formats/rule.h"

#include <algorithm>

#include "base/check.h"
#include "sparse/interpret.h"

namespace weft::sparse {

void check_inverse(const FormatRewriteRule& rule, const std::vector<std::string>& old_axes) {
  for (const std::string& axis : old_axes)
    check(rule.to_old.contains(axis), ErrorCode::invalid_argument, "format {}: the inverse map has no '{}'", rule.name,
          axis);
  // Along each axis: small numbers, and those around the width of a block. Extents that the maps speak of are larger.
  constexpr int64_t kGrid[] = {0, 1, 2, 3, 5, 8, 13, 31, 32, 33, 100, 255};
  Evaluator at, there;
  for (const auto* maps : {&rule.to_new, &rule.to_old})
    for (const auto& [axis, expr] : *maps)
      for (const std::string& name : loop::variables_of(expr)) at.set(name, 256), there.set(name, 256);
  std::vector<size_t> chosen(old_axes.size(), 0);
  for (;;) {
    for (size_t a = 0; a < old_axes.size(); ++a) at.set(old_axes[a], kGrid[chosen[a]]);
    for (const auto& [axis, expr] : rule.to_new) there.set(axis, at(expr));
    for (const std::string& axis : rule.buffer_axes)
      if (!rule.to_new.contains(axis)) there.set(axis, 0);
    for (size_t a = 0; a < old_axes.size(); ++a) {
      const int64_t back = there(rule.to_old.at(old_axes[a]));
      check(back == kGrid[chosen[a]], ErrorCode::invalid_argument,
            "format {}: its maps are not inverse to each other: {} = {} comes back as {} through {}", rule.name,
            old_axes[a], kGrid[chosen[a]], back, loop::to_text(rule.to_old.at(old_axes[a])));
    }
    size_t a = 0;
    while (a < chosen.size() && ++chosen[a] == std::size(kGrid)) chosen[a++] = 0;
    if (a == chosen.size()) return;
  }
}

Names declared_names(const FormatRewriteRule& rule) {
  Names names(rule.params.begin(), rule.params.end());
  for (const Axis& axis : rule.axes)
    for (const std::string& name : {axis.name, axis.indptr, axis.indices})
      if (!name.empty()) names.insert(name);
  return names;
}

namespace {

std::vector<std::string> with_suffix(std::vector<std::string> names, const std::string& suffix) {
  for (std::string& name : names) name += suffix;
  return names;
}

template <class Value>
std::map<std::string, Value> keys_with_suffix(const std::map<std::string, Value>& values, const std::string& suffix) {
  std::map<std::string, Value> result;
  for (const auto& [key, value] : values) result[key + suffix] = value;
  return result;
}

template <class Value>
std::map<std::string, Value> keys_without(const std::map<std::string, Value>& values, size_t suffix) {
  std::map<std::string, Value> result;
  for (const auto& [key, value] : values) result[key.substr(0, key.size() - suffix)] = value;
  return result;
}

}  // namespace

FormatRewriteRule with_suffix(const FormatRewriteRule& rule, const std::string& suffix) {
  FormatRewriteRule result = rule;
  Substitution params, axes;
  for (const std::string& param : rule.params) params[param] = loop::variable(param + suffix);
  for (const Axis& axis : rule.axes) axes[axis.name] = loop::variable(axis.name + suffix);
  result.name += suffix;
  result.params = with_suffix(rule.params, suffix);
  for (Axis& axis : result.axes) {
    for (std::string* name : {&axis.name, &axis.parent, &axis.indptr, &axis.indices})
      if (!name->empty()) *name += suffix;
    axis.length = loop::substitute(axis.length, params);
    if (axis.nnz) axis.nnz = loop::substitute(axis.nnz, params);
  }
  result.buffer_axes = with_suffix(rule.buffer_axes, suffix);
  for (auto& [old, list] : result.axis_map) list = with_suffix(list, suffix);
  result.to_new = keys_with_suffix(rule.to_new, suffix);
  for (auto& [old, map] : result.to_old) map = loop::substitute(map, axes);
  result.iterators = keys_with_suffix(rule.iterators, suffix);
  if (!result.apart.empty()) result.apart += suffix;
  result.take = [take = rule.take, suffix](const Coordinates& left, bool last) {
    FormatArrays stored = take(left, last);
    stored.arrays = keys_with_suffix(stored.arrays, suffix);
    stored.scalars = keys_with_suffix(stored.scalars, suffix);
    return stored;
  };
  if (rule.count)
    result.count = [count = rule.count, suffix](const Coordinates& left, const FormatArrays& stored) {
      return count(left, {.arrays = keys_without(stored.arrays, suffix.size()),
                          .scalars = keys_without(stored.scalars, suffix.size()),
                          .taken = stored.taken});
    };
  return result;
}

bool stores_zeros(const FormatRewriteRule& rule) {
  // In one chain that ends in a sparse axis every position is an element's own; other axes cross it.
  const auto axis_of = [&](const std::string& name) {
    return std::find_if(rule.axes.begin(), rule.axes.end(), [&](const Axis& a) { return a.name == name; });
  };
  for (size_t a = 0; a < rule.buffer_axes.size(); ++a)
    if (a > 0 && axis_of(rule.buffer_axes[a])->parent.empty()) return true;
  return !axis_of(rule.buffer_axes.back())->is_sparse;
}

std::string counting_axis(const FormatRewriteRule& rule) {
  for (const Axis& axis : rule.axes)
    if (!rule.to_new.contains(axis.name) && !loop::is_literal(axis.length, 1)) return axis.name;
  return {};
}

std::string places_of(const std::string& axis) { return axis + "_place"; }

std::vector<char> taken_if_full(const Coordinates& left, bool last,
                                const std::function<std::pair<int64_t, int64_t>(size_t element)>& place,
                                const std::function<int64_t(const std::pair<int64_t, int64_t>& place)>& size) {
  std::vector<char> taken(left.size(), 1);
  if (last) return taken;
  std::map<std::pair<int64_t, int64_t>, int64_t> filled;
  for (size_t e = 0; e < left.size(); ++e) ++filled[place(e)];
  for (size_t e = 0; e < left.size(); ++e) taken[e] = 2 * filled[place(e)] >= size(place(e)) ? 1 : 0;
  return taken;
}

void map_to_blocks(FormatRewriteRule& rule, const MatrixAxes& matrix, int64_t block, const BlockAxes& axes) {
  const auto& [io, jo, ii, ji] = axes;
  rule.axis_map = {{matrix.row, {io, ii}}, {matrix.col, {jo, ji}}};
  const Expr i = loop::variable(matrix.row), j = loop::variable(matrix.col);
  rule.to_new = {{io, loop::floor_div(i, block)},
                 {jo, loop::floor_div(j, block)},
                 {ii, loop::modulo(i, block)},
                 {ji, loop::modulo(j, block)}};
  rule.to_old = {{matrix.row, loop::variable(io) * block + loop::variable(ii)},
                 {matrix.col, loop::variable(jo) * block + loop::variable(ji)}};
  rule.iterators = {{io, "io"}, {jo, "jo"}, {ii, "ii"}, {ji, "ji"}};
}

void check_no_stack(const MatrixAxes& matrix, const std::string& format) {
  check(matrix.outer.empty(), ErrorCode::unsupported,
        "decompose_format: format {} of a stack of matrices: required: a matrix; supported for a stack: hyb(c, k)",
        format);
}

std::vector<FormatArrays> take_all(const std::vector<FormatRewriteRule>& rules, Coordinates left, const Names& wanted) {
  std::vector<FormatArrays> all;
  std::vector<size_t> number(wanted.empty() ? 0 : left.size());  // of each element that is left, in the matrix
  for (size_t e = 0; e < number.size(); ++e) number[e] = e;
  const size_t size = left.size();
  for (size_t r = 0; r < rules.size(); ++r) {
    all.push_back(rules[r].take(left, r + 1 == rules.size()));
    const std::vector<char>& taken = all.back().taken;
    ensure(taken.size() == left.size(), "format {} answered for {} of {} elements", rules[r].name, taken.size(),
           left.size());
    if (const std::string places = places_of(counting_axis(rules[r])); wanted.contains(places)) {
      std::vector<int32_t>& all_places = all.back().arrays[places];
      all_places.assign(size, 0);
      const std::vector<int32_t> counted = rules[r].count(left, all.back());
      for (size_t e = 0; e < left.size(); ++e)
        if (taken[e] != 0) all_places[number[e]] = counted[e] + 1;
    }
    size_t kept = 0;
    for (size_t e = 0; e < left.size(); ++e) {
      if (taken[e] != 0) continue;
      if (!left.outer.empty()) left.outer[kept] = left.outer[e];
      if (!number.empty()) number[kept] = number[e];
      left.rows[kept] = left.rows[e];
      left.cols[kept++] = left.cols[e];
    }
    if (!left.outer.empty()) left.outer.resize(kept);
    left.rows.resize(kept);
    left.cols.resize(kept);
  }
  check(left.size() == 0, ErrorCode::invalid_argument,
        "decompose_format: {} elements are in none of the formats, the first at row {}, column {}; end with a format "
        "that "
        "takes any, such as csr()",
        left.size(), left.size() == 0 ? 0 : left.rows[0], left.size() == 0 ? 0 : left.cols[0]);
  return all;
}

}  // namespace weft::sparse
