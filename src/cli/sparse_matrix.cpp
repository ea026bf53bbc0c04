#include "cli/sparse_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "base/error_message.h"
#include "base/names.h"
#include "cli/arguments.h"
#include "cli/packed_file.h"
#include "sparse/bind.h"
#include "sparse/check.h"
#include "sparse/formats/structure_on.h"

namespace weft::cli {
namespace {

// Of a matrix with rows and columns.
void read_into(MatrixOption& matrix, const sparse::Stage1& program, const MatrixReading& reading) {
  const std::string text = read_packed_file(matrix.path);
  sparse::MatrixData data;
  if (reading.places_alone)
    data.coo = sparse::parse_places(matrix.path, text);
  else
    data = sparse::parse_matrix(matrix.path, text);
  if (reading.sum_duplicates) {
    sparse::Merged merged = sparse::merged(data.coo);
    std::vector<double> sums(data.values.empty() ? 0 : merged.coo.rows.size(), 0);
    for (size_t e = 0; e < data.values.size(); ++e) sums[static_cast<size_t>(merged.place[e])] += data.values[e];
    data = {std::move(merged.coo), std::move(sums)};
  }
  sparse::Converted converted = sparse::converted_on(program, matrix.axis, data.coo);
  matrix.structure = std::move(converted.structure);
  matrix.order = std::move(converted.order);
  matrix.values = std::move(data.values);
}

// Below several axes, by how many they are.
void read_tensor_into(MatrixOption& matrix, const sparse::Stage1& program, const std::vector<std::string>& above,
                      const MatrixReading& reading) {
  sparse::TensorData data = sparse::parse_tensor(matrix.path, read_packed_file(matrix.path));
  const size_t rank = data.coo.extents.size();
  int64_t tile = 0;
  sparse::Converted converted;
  if (above.size() == rank)
    converted = sparse::csf_from_coo(data.coo);
  else if (rank == 3 && above.size() == 2)
    converted = sparse::relations_from_coo(data.coo);
  else if (rank == 3 && above.size() == 4 && loop::is_integer(program.axis(above.back()).length, &tile))
    converted = sparse::relational_from_coo(data.coo, tile);
  else
    fail(ErrorCode::invalid_argument,
         "the tensor has {} dimensions and axis '{}' has {} above it; required: as many (CSF below an axis of one), or "
         "relations as relations_from_coo and relational_from_coo make them",
         rank, matrix.axis, above.size());
  matrix.structure = std::move(converted.structure);
  matrix.order = std::move(converted.order);
  if (!reading.places_alone) matrix.values = std::move(data.values);
}

}  // namespace

MatrixOption read_matrix_option(const sparse::Stage1& program, const std::string& axis, const std::string& path,
                                const MatrixReading& reading) {
  std::vector<std::string> axes, structured;
  for (const sparse::Axis& one : program.axes) {
    axes.push_back(one.name);
    if (!one.parent.empty() && sparse::last_below(program, one.name) == one.name) structured.push_back(one.name);
  }
  const std::string option = fmt::format("{} {}={}", reading.option, axis, path);
  check(program.find_axis(axis) != nullptr, ErrorCode::invalid_argument,
        "{}: the program has no axis '{}'; its axes are {}, and files are taken by {}", option, axis, joined(axes),
        structured.empty() ? "none of them" : joined(structured));
  const std::vector<std::string> above = program.ancestors(axis);
  check(!above.empty(), ErrorCode::invalid_argument, "{}: axis '{}' stores every coordinate; files are taken by {}",
        option, axis, structured.empty() ? "no axis of this program" : joined(structured));
  MatrixOption matrix{.axis = axis, .path = path, .given = option};
  try {
    if (above.size() <= 1 || !sparse::is_tensor_file(path))
      read_into(matrix, program, reading);
    else
      read_tensor_into(matrix, program, above, reading);
  } catch (const Error& error) {
    // What readers say begins with the file's name; what conversions say does not.
    const std::string message = message_of(error);
    if (message.starts_with("'" + path + "'")) throw;
    throw Error(error.code(), fmt::format("{}: {}", option, message));
  }
  return matrix;
}

std::string buffer_of_values(const sparse::Stage1& program, const MatrixOption& matrix,
                             const std::vector<std::string>& given) {
  if (matrix.values.empty()) return {};
  std::vector<std::string> chain = program.ancestors(matrix.axis), found;
  chain.push_back(matrix.axis);
  for (const std::string& name : sparse::inputs_of(program)) {
    const std::vector<std::string>& axes = program.buffer(name).axes;
    if (axes.size() < chain.size() || !std::equal(chain.begin(), chain.end(), axes.begin())) continue;
    // Values of blocks: as many at each position as the order has.
    int64_t count = matrix.structure.nnz();
    bool is_literal = true;
    for (auto axis = axes.begin() + static_cast<std::ptrdiff_t>(chain.size()); axis != axes.end(); ++axis) {
      int64_t length = 0;
      is_literal &= program.axis(*axis).parent.empty() && loop::is_integer(program.axis(*axis).length, &length);
      count *= length;
    }
    const bool is_given = std::find(given.begin(), given.end(), name) != given.end();
    if (is_literal && count == static_cast<int64_t>(matrix.order.size()) && !is_given) found.push_back(name);
  }
  if (found.size() > 1)
    throw UsageError(
        fmt::format("--matrix {}={}: its values could be those of {}; give all but one of them, as in "
                    "--input {}=FILE.npy, or take the places alone, --pattern",
                    matrix.axis, matrix.path, joined(found), found.back()));
  return found.empty() ? "" : found[0];
}

}  // namespace weft::cli
