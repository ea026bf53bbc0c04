#include "cli/sparse_structure.h"

#include <algorithm>

#include "base/check.h"
#include "base/error_message.h"
#include "base/names.h"
#include "cli/arguments.h"
#include "cli/packed_file.h"
#include "sparse/bind.h"
#include "sparse/interpret.h"

namespace weft::cli {
namespace {

std::vector<std::string> names_of_arrays(const sparse::Axis& axis) {
  std::vector<std::string> names;
  if (axis.is_variable) names.emplace_back("INDPTR.npy");
  if (axis.is_sparse) names.emplace_back("INDICES.npy");
  return names;
}

// "J=INDPTR.npy,INDICES.npy"
std::string form_of(const sparse::Axis& axis) {
  std::string form;
  for (const std::string& name : names_of_arrays(axis)) form += (form.empty() ? axis.name + "=" : ",") + name;
  return form;
}

std::vector<std::string> paths_of(const std::string& files) {
  std::vector<std::string> paths(1);
  for (const char c : files) {
    if (c == ',')
      paths.emplace_back();
    else
      paths.back() += c;
  }
  return paths;
}

bool is_array_file(const std::string& path) { return path.ends_with(".npy") || path.ends_with(".npy.gz"); }

sparse::IndexArray numbers_of(const sparse::Array& array) {
  const auto size = static_cast<size_t>(array.view().size());
  const std::byte* bytes = array.bytes().data();
  if (array.dtype() == DType::int64) return std::span(reinterpret_cast<const int64_t*>(bytes), size);
  return std::span(reinterpret_cast<const int32_t*>(bytes), size);
}

int64_t number_at(const sparse::IndexArray& array, size_t at) {
  return std::visit([&](const auto& numbers) -> int64_t { return numbers[at]; }, array);
}

std::vector<std::string> chain_to(const sparse::Stage1& program, const std::string& last) {
  std::vector<std::string> chain = program.ancestors(last);
  chain.push_back(last);
  return chain;
}

// A number that parameters tell; -1 where one of them is not known.
int64_t known_number(const loop::Expr& e, const sparse::Bound& known) {
  for (const std::string& name : loop::variables_of(e))
    if (!known.numbers.scalars.contains(name)) return -1;
  return sparse::evaluate(e, known.numbers);
}

// How many positions there are above the axis, as its arrays have it.
int64_t positions_above(const sparse::Axis& axis, const AxisArrays& arrays, const sparse::Bound& known) {
  const sparse::Array& first = arrays.arrays[0];
  const auto size = first.view().size();
  if (axis.is_variable) return std::max<int64_t>(size - 1, 0);
  if (first.shape().size() == 2) return first.shape()[0];
  const int64_t width = known_number(axis.nnz, known);
  return width > 0 ? size / width : -1;
}

int64_t longest_row(const sparse::IndexArray& indptr) {
  int64_t longest = 0;
  const size_t size = std::visit([](const auto& numbers) { return numbers.size(); }, indptr);
  for (size_t i = 1; i < size; ++i) longest = std::max(longest, number_at(indptr, i) - number_at(indptr, i - 1));
  return longest;
}

[[noreturn]] void lacks_length(const sparse::Axis& axis, const std::string& what, const loop::Expr& length,
                               const sparse::Bound& known) {
  std::vector<std::string> missing;
  for (const std::string& name : loop::variables_of(length))
    if (!known.numbers.scalars.contains(name)) missing.push_back(fmt::format("--set {}=N", name));
  throw UsageError(fmt::format("{} {} missing: no array tells the {} of axis '{}', {}", joined(missing),
                               missing.size() == 1 ? "is" : "are", what, axis.name, loop::to_text(length)));
}

// `above`: positions of the axis before it; -1 where nothing has told them.
sparse::StoredAxis stored_axis(const sparse::Axis& axis, const AxisArrays& arrays, int64_t above,
                               const sparse::Bound& known) {
  sparse::StoredAxis stored{.length = known_number(axis.length, known), .name = axis.name};
  if (axis.is_variable)
    stored.kind = axis.is_sparse ? sparse::AxisKind::sparse_variable : sparse::AxisKind::dense_variable;
  else
    stored.kind = sparse::AxisKind::sparse_fixed;
  if (axis.is_variable) stored.indptr = numbers_of(arrays.arrays.front());
  if (axis.is_sparse) stored.indices = numbers_of(arrays.arrays.back());
  if (stored.length < 0 && axis.is_sparse) lacks_length(axis, "length", axis.length, known);
  if (stored.length < 0) stored.length = longest_row(stored.indptr);
  if (axis.is_variable) return stored;
  const sparse::Array& indices = arrays.arrays[0];
  stored.nnz_cols = known_number(axis.nnz, known);
  if (indices.shape().size() == 2) {
    check(stored.nnz_cols < 0 || stored.nnz_cols == indices.shape()[1], ErrorCode::invalid_shape,
          "the indices have {} a row; axis '{}' has {} = {}", counted(indices.shape()[1], "place"), axis.name,
          loop::to_text(axis.nnz), stored.nnz_cols);
    stored.nnz_cols = indices.shape()[1];
  }
  // Where the arrays above are wrong, structure_of says so.
  if (stored.nnz_cols < 0 && above != 0) stored.nnz_cols = above > 0 ? indices.view().size() / above : 0;
  if (stored.nnz_cols < 0) lacks_length(axis, "width", axis.nnz, known);
  return stored;
}

sparse::Structure structure_of_chain(const sparse::Stage1& program, const std::vector<std::string>& chain,
                                     const std::map<std::string, AxisArrays>& by_axis, const sparse::Bound& known) {
  const sparse::Axis& root = program.axis(chain[0]);
  int64_t above = known_number(root.length, known);
  if (above < 0) above = positions_above(program.axis(chain[1]), by_axis.at(chain[1]), known);
  if (above < 0) lacks_length(root, "length", root.length, known);
  std::vector<sparse::StoredAxis> axes = {{.length = above, .name = root.name}};
  for (size_t a = 1; a < chain.size(); ++a) {
    const sparse::Axis& axis = program.axis(chain[a]);
    const AxisArrays& arrays = by_axis.at(chain[a]);
    axes.push_back(stored_axis(axis, arrays, above, known));
    if (axis.is_variable)
      above = arrays.arrays[0].view().size() == 0
                  ? 0
                  : number_at(axes.back().indptr, static_cast<size_t>(arrays.arrays[0].view().size()) - 1);
    else
      above *= axes.back().nnz_cols;
  }
  return sparse::structure_of(axes);
}

}  // namespace

bool is_of_arrays(const std::string& files) { return is_array_file(files); }

AxisArrays read_axis_arrays(const sparse::Stage1& program, const std::string& axis, const std::string& files) {
  AxisArrays result{.given = fmt::format("--structure {}={}", axis, files), .arrays = {}};
  std::vector<std::string> forms;
  for (const sparse::Axis& one : program.axes)
    if (!one.parent.empty()) forms.push_back(form_of(one));
  const sparse::Axis* of = program.find_axis(axis);
  check(of != nullptr && !of->parent.empty(), ErrorCode::invalid_argument, "{}: {}; arrays are taken {}", result.given,
        of == nullptr ? fmt::format("the program has no axis '{}'", axis)
                      : fmt::format("axis '{}' stores every coordinate", axis),
        forms.empty() ? "by no axis of this program" : "as " + joined(forms));
  const std::vector<std::string> paths = paths_of(files);
  const bool fits = paths.size() == names_of_arrays(*of).size() &&
                    std::all_of(paths.begin(), paths.end(), [](const auto& path) { return is_array_file(path); });
  check(fits, ErrorCode::invalid_argument, "{}: gives {}; the arrays of axis '{}' are --structure {}", result.given,
        counted(static_cast<int64_t>(paths.size()), "file"), axis, form_of(*of));
  for (const std::string& path : paths) {
    const sparse::Array& array = result.arrays.emplace_back(sparse::parse_npy(path, read_packed_file(path)));
    check(array.dtype() == DType::int32 || array.dtype() == DType::int64, ErrorCode::invalid_dtype,
          "{}: '{}' is of {}; arrays of structures are of int32 or int64", result.given, path,
          to_string(array.dtype()));
    const size_t most = !of->is_variable ? 2 : 1;
    check(!array.shape().empty() && array.shape().size() <= most, ErrorCode::invalid_shape, "{}: '{}' has {}; {}",
          result.given, path, counted(static_cast<int64_t>(array.shape().size()), "dimension"),
          most == 1 ? "one is expected" : "one, or two as [rows, places a row], are expected");
  }
  return result;
}

std::map<std::string, sparse::Structure> structures_of_arrays(const sparse::Stage1& program,
                                                              const std::map<std::string, AxisArrays>& by_axis,
                                                              const std::map<std::string, int64_t>& scalars,
                                                              const sparse::RunArguments& arguments,
                                                              const sparse::ArgumentNames& names) {
  if (by_axis.empty()) return {};
  sparse::Bound known;
  known.numbers.scalars = scalars;
  sparse::bind_structures(program, {}, arguments.structures, known, names);
  sparse::bind_shapes(program, arguments.buffers, known, names);
  std::map<std::string, sparse::Structure> result;
  for (const sparse::Axis& last : program.axes) {
    if (last.parent.empty() || sparse::last_below(program, last.name) != last.name) continue;
    const std::vector<std::string> chain = chain_to(program, last.name);
    std::vector<std::string> given, missing;
    for (size_t a = 1; a < chain.size(); ++a) {
      const auto found = by_axis.find(chain[a]);
      if (found == by_axis.end())
        missing.push_back(fmt::format("--structure {}", form_of(program.axis(chain[a]))));
      else
        given.push_back(found->second.given);
    }
    if (given.empty()) continue;
    if (arguments.structures.contains(last.name))
      throw UsageError(fmt::format("{} and {}: both give the structure of ({})", names.structure(last.name),
                                   joined(given), joined(chain)));
    if (!missing.empty())
      throw UsageError(fmt::format("{} {} missing: with {} alone the structure of ({}) is not known", joined(missing),
                                   missing.size() == 1 ? "is" : "are", joined(given), joined(chain)));
    try {
      result[last.name] = structure_of_chain(program, chain, by_axis, known);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", joined(given), message_of(error)));
    }
  }
  return result;
}

}  // namespace weft::cli
