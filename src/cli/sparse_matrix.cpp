#include "cli/sparse_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "base/error_message.h"
#include "base/names.h"
#include "cli/arguments.h"
#include "cli/packed_file.h"
#include "cli/sparse_elements.h"
#include "device/cpu/cgroup.h"
#include "sparse/bind.h"
#include "sparse/check.h"
#include "sparse/formats/structure_on.h"
#include "sparse/interpret.h"

namespace weft::cli {
namespace {

// A file may say any number of rows, or of relations, and conversions make an array over all of them: what a run takes
// at least is compared with the memory before they do.
void check_rows_fit(const sparse::Stage1& program, const std::string& root, int64_t num_rows,
                    const MatrixReading& reading) {
  const loop::Expr& length = program.axis(root).length;
  constexpr int64_t kFew = int64_t{1} << 26;  // in a fraction of a second; what is too large then, is found by the run
  if (num_rows <= kFew || length->op != loop::Op::variable) return;
  loop::Memory known{.scalars = reading.set};
  known.scalars.emplace(length->name, num_rows);
  // The structure's array, twice while it is made, and the tensors on axes of known lengths.
  double bytes = 2. * sizeof(int32_t) * static_cast<double>(num_rows);
  for (const sparse::SparseBuffer& buffer : program.buffers) {
    double count = buffer.temporary || !reading.is_run ? 0 : 1;
    for (const std::string& one : buffer.axes) {
      const sparse::Axis& dense = program.axis(one);
      bool is_known = dense.parent.empty();
      for (const std::string& name : loop::variables_of(dense.length)) is_known &= known.scalars.contains(name);
      count *= is_known ? static_cast<double>(sparse::evaluate(dense.length, known)) : 0;
    }
    bytes += count * bits_of(buffer.dtype) / 8;
  }
  const auto available = static_cast<double>(available_memory());
  check(bytes <= available, ErrorCode::out_of_memory,
        "axis '{}' of {} coordinates does not fit into memory: it takes {:.1f} GB at least, and {:.1f} GB are free; "
        "take a smaller matrix",
        root, num_rows, bytes / 1e9, available / 1e9);
}

// Of a matrix with rows and columns.
void read_into(MatrixOption& matrix, const sparse::Stage1& program, const MatrixReading& reading) {
  const std::string text = read_packed_file(matrix.path);
  sparse::MatrixData data;
  if (reading.places_alone)
    data.coo = sparse::parse_places(matrix.path, text);
  else
    data = sparse::parse_matrix(matrix.path, text);
  if (reading.sum_duplicates) sum_duplicates(data);
  const std::vector<std::string> above = program.ancestors(matrix.axis);
  if (above.size() == 1) check_rows_fit(program, above[0], data.coo.num_rows, reading);
  sparse::Converted converted = naming_duplicates(matrix.path, text, data.coo,
                                                  [&] { return sparse::converted_on(program, matrix.axis, data.coo); });
  matrix.structure = std::move(converted.structure);
  matrix.order = std::move(converted.order);
  matrix.values = std::move(data.values);
}

// Below several axes, by how many they are.
sparse::Converted converted_tensor(const sparse::Stage1& program, const std::string& axis,
                                   const std::vector<std::string>& above, const sparse::CooTensor& coo) {
  const size_t rank = coo.extents.size();
  int64_t tile = 0;
  if (above.size() == rank) return sparse::csf_from_coo(coo);
  if (rank == 3 && above.size() == 2) return sparse::relations_from_coo(coo);
  if (rank == 3 && above.size() == 4 && loop::is_integer(program.axis(above.back()).length, &tile))
    return sparse::relational_from_coo(coo, tile);
  fail(ErrorCode::invalid_argument,
       "the tensor has {} and axis '{}' has {} above it; required: as many (CSF below an axis of one), or relations "
       "below their rows, as relations or in tiles of rows (rgms_hyb.txt and rgms.txt of examples/sparse)",
       counted(static_cast<int64_t>(rank), "dimension"), axis, above.size());
}

void read_tensor_into(MatrixOption& matrix, const sparse::Stage1& program, const std::vector<std::string>& above,
                      const MatrixReading& reading) {
  const std::string text = read_packed_file(matrix.path);
  sparse::TensorData data = sparse::parse_tensor(matrix.path, text);
  if (reading.sum_duplicates) sum_duplicates(data);
  if (above.size() == 2 && data.coo.extents.size() == 3)
    check_rows_fit(program, above[0], data.coo.extents[0], reading);
  sparse::Converted converted = naming_duplicates(
      matrix.path, text, data.coo, [&] { return converted_tensor(program, matrix.axis, above, data.coo); });
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
