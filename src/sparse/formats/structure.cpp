#include "sparse/formats/structure.h"

#include <algorithm>

#include "base/check.h"

namespace weft::sparse {
namespace {

// What messages about a level begin with.
std::string where_of(const Level& level) { return level.name.empty() ? "structure" : "structure: " + level.name; }

void check_extent(const std::string& where, int64_t extent, const char* what) {
  check(extent >= 0 && extent <= INT32_MAX, ErrorCode::invalid_argument, "{}: {} is {}; 0 to {} fit indices of 32 bits",
        where, what, extent, INT32_MAX);
}

// The first number that is less than the one before it; how many there are where none is. Rows may be 2^31, most of
// them empty: pieces are compared as a whole, by vectors.
size_t first_fall(const std::vector<int32_t>& numbers) {
  constexpr size_t kPiece = 4096;
  for (size_t begin = 1; begin < numbers.size(); begin += kPiece) {
    const size_t end = std::min(begin + kPiece, numbers.size());
    int32_t falls = 0;
    for (size_t i = begin; i < end; ++i) falls |= numbers[i] < numbers[i - 1] ? 1 : 0;
    if (falls == 0) continue;
    while (numbers[begin] >= numbers[begin - 1]) ++begin;
    return begin;
  }
  return numbers.size();
}

// Calls with each row that holds something and the range of its places, in order. Where an indptr does not rise over a
// piece of rows, all of them are empty: they are passed by together.
template <class Call>
void for_held_rows(const std::vector<int32_t>& indptr, const Call& call) {
  constexpr size_t kPiece = 64;
  for (size_t begin = 0; begin + 1 < indptr.size(); begin += kPiece) {
    const size_t end = std::min(begin + kPiece, indptr.size() - 1);
    if (indptr[begin] == indptr[end]) continue;
    for (size_t row = begin; row < end; ++row)
      if (indptr[row] < indptr[row + 1]) call(static_cast<int64_t>(row), indptr[row], indptr[row + 1]);
  }
}

void check_indptr(const std::string& where, const Level& level, int64_t num_parents) {
  const auto size = static_cast<int64_t>(level.indptr.size());
  check(size == num_parents + 1, ErrorCode::invalid_indptr, "{}: indptr has {} elements; {} rows need {}", where, size,
        num_parents, num_parents + 1);
  check(level.indptr[0] == 0, ErrorCode::invalid_indptr, "{}: indptr[0] is {}; it begins at 0", where, level.indptr[0]);
  const size_t i = first_fall(level.indptr);
  if (i < level.indptr.size())
    fail(ErrorCode::invalid_indptr, "{}: indptr[{}] is {}, less than the {} before it; an indptr never falls", where, i,
         level.indptr[i], level.indptr[i - 1]);
}

// Of one row: they rise, and lie below the length; places that are not used follow, where the axis may have them.
void check_row(const std::string& where, const Level& level, int64_t begin, int64_t end, int64_t row) {
  bool padded = false;
  for (int64_t p = begin; p < end; ++p) {
    const int32_t index = level.indices[static_cast<size_t>(p)];
    if (!level.is_variable && index == level.length) {
      padded = true;
      continue;
    }
    check(index >= 0 && index < level.length, ErrorCode::invalid_argument,
          "{}: indices[{}], of row {}, is {}; allowed are 0 to {}", where, p, row, index, level.length - 1);
    check(!padded, ErrorCode::invalid_argument,
          "{}: indices[{}], of row {}, follows a place that is not used; those stand last", where, p, row);
    const bool rises = p == begin || level.indices[static_cast<size_t>(p - 1)] < index;
    check(rises, ErrorCode::invalid_argument,
          "{}: indices[{}], of row {}, is {} after {}; the indices of a row rise, and none stands twice", where, p, row,
          index, p == begin ? 0 : level.indices[static_cast<size_t>(p - 1)]);
  }
}

}  // namespace

Structure make_structure(std::vector<Level> levels) {
  ensure(!levels.empty() && !levels[0].is_sparse && !levels[0].is_variable, "a structure begins with a dense axis");
  check_extent(where_of(levels[0]), levels[0].length, "the number of rows");
  levels[0].num_positions = levels[0].length;
  for (size_t l = 1; l < levels.size(); ++l) {
    Level& level = levels[l];
    const std::string where = where_of(level);
    const int64_t parents = levels[l - 1].num_positions;
    check_extent(where, level.length, "the number of columns");
    if (level.is_variable) {
      check_indptr(where, level, parents);
      level.num_positions = level.indptr.back();
    } else {
      check_extent(where, level.per_parent, "the width of a row");
      check(parents == 0 || level.per_parent <= INT32_MAX / parents, ErrorCode::invalid_argument,
            "{}: {} rows of {} places do not fit indices of 32 bits", where, parents, level.per_parent);
      level.num_positions = parents * level.per_parent;
    }
    if (!level.is_sparse) {
      for_held_rows(level.indptr, [&](int64_t row, int64_t begin, int64_t end) {
        check(end - begin <= level.length, ErrorCode::invalid_indptr,
              "{}: row {} has {} elements; at most {} are allowed", where, row, end - begin, level.length);
      });
      continue;
    }
    check(static_cast<int64_t>(level.indices.size()) == level.num_positions, ErrorCode::invalid_indptr,
          "{}: there are {} indices; indptr or width says {}", where, level.indices.size(), level.num_positions);
    const auto check_one = [&](int64_t row, int64_t begin, int64_t end) { check_row(where, level, begin, end, row); };
    if (level.is_variable) for_held_rows(level.indptr, check_one);
    for (int64_t begin = 0; !level.is_variable && begin < level.num_positions; begin += level.per_parent)
      check_one(begin / level.per_parent, begin, begin + level.per_parent);
  }
  return Structure(std::make_shared<const Structure::Data>(std::move(levels)));
}

const Structure::Data& data_of(const Structure& structure, const char* name) {
  return held(structure.data(), name, "csr, ell or another format");
}

int64_t Structure::num_rows() const { return data_of(*this, "structure").levels.front().length; }
int64_t Structure::num_cols() const { return data_of(*this, "structure").levels.back().length; }
int64_t Structure::nnz() const { return data_of(*this, "structure").levels.back().num_positions; }

Structure csr(int64_t num_rows, int64_t num_cols, std::span<const int32_t> indptr, std::span<const int32_t> indices) {
  return make_structure({{.length = num_rows},
                         {.is_sparse = true,
                          .is_variable = true,
                          .length = num_cols,
                          .indptr = {indptr.begin(), indptr.end()},
                          .indices = {indices.begin(), indices.end()}}});
}

namespace {

std::vector<int32_t> narrowed(const std::string& where, const char* name, std::span<const int64_t> wide) {
  const ErrorCode code = std::string_view(name) == "indptr" ? ErrorCode::invalid_indptr : ErrorCode::invalid_argument;
  std::vector<int32_t> result(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    check(wide[i] >= 0 && wide[i] <= INT32_MAX, code, "{}: {}[{}] is {}; 0 to {} fit indices of 32 bits", where, name,
          i, wide[i], INT32_MAX);
    result[i] = static_cast<int32_t>(wide[i]);
  }
  return result;
}

}  // namespace

Structure csr(int64_t num_rows, int64_t num_cols, std::span<const int64_t> indptr, std::span<const int64_t> indices) {
  return make_structure({{.length = num_rows},
                         {.is_sparse = true,
                          .is_variable = true,
                          .length = num_cols,
                          .indptr = narrowed("structure", "indptr", indptr),
                          .indices = narrowed("structure", "indices", indices)}});
}

Structure ell(int64_t num_rows, int64_t num_cols, int64_t width, std::span<const int32_t> indices) {
  return make_structure(
      {{.length = num_rows},
       {.is_sparse = true, .length = num_cols, .per_parent = width, .indices = {indices.begin(), indices.end()}}});
}

Structure ragged(int64_t num_rows, int64_t max_length, std::span<const int32_t> indptr) {
  return make_structure(
      {{.length = num_rows}, {.is_variable = true, .length = max_length, .indptr = {indptr.begin(), indptr.end()}}});
}

namespace {

const char* name_of(AxisKind kind) {
  switch (kind) {
    case AxisKind::dense_fixed: return "dense_fixed";
    case AxisKind::dense_variable: return "dense_variable";
    case AxisKind::sparse_fixed: return "sparse_fixed";
    case AxisKind::sparse_variable: return "sparse_variable";
  }
  return "";
}

// An array that an axis of the kind has, or has not.
std::vector<int32_t> array_of(const std::string& where, AxisKind kind, const char* name, const IndexArray& array,
                              bool has_one) {
  const bool is_empty = std::visit([](const auto& span) { return span.empty(); }, array);
  check(has_one || is_empty, ErrorCode::invalid_argument, "{}: {} is given, and an axis that is {} has none", where,
        name, name_of(kind));
  if (const auto* wide = std::get_if<std::span<const int64_t>>(&array)) return narrowed(where, name, *wide);
  const auto& numbers = std::get<std::span<const int32_t>>(array);
  return {numbers.begin(), numbers.end()};
}

}  // namespace

Structure structure_of(const std::vector<StoredAxis>& axes) {
  constexpr size_t kMost = 7;  // what the language allows: six ancestors
  check(!axes.empty() && axes.size() <= kMost, ErrorCode::invalid_argument,
        "structure: there are {} axes; 1 to {} are allowed", axes.size(), kMost);
  std::vector<Level> levels;
  for (size_t a = 0; a < axes.size(); ++a) {
    const StoredAxis& axis = axes[a];
    Level level{.name = axis.name.empty() ? fmt::format("axis {}", a) : fmt::format("axis {} '{}'", a, axis.name)};
    level.is_sparse = axis.kind == AxisKind::sparse_fixed || axis.kind == AxisKind::sparse_variable;
    level.is_variable = axis.kind == AxisKind::dense_variable || axis.kind == AxisKind::sparse_variable;
    const std::string where = where_of(level);
    check((a == 0) == (axis.kind == AxisKind::dense_fixed), ErrorCode::invalid_argument,
          "{}: is {}; the first axis is dense_fixed, and those below it are one of the other three", where,
          name_of(axis.kind));
    check(axis.kind == AxisKind::sparse_fixed || axis.nnz_cols == 0, ErrorCode::invalid_argument,
          "{}: nnz_cols is {}, and an axis that is {} has none", where, axis.nnz_cols, name_of(axis.kind));
    level.length = axis.length;
    level.per_parent = axis.nnz_cols;
    level.indptr = array_of(where, axis.kind, "indptr", axis.indptr, level.is_variable);
    level.indices = array_of(where, axis.kind, "indices", axis.indices, level.is_sparse);
    levels.push_back(std::move(level));
  }
  return make_structure(std::move(levels));
}

namespace {

Coordinates coordinates_of_stack(const Structure::Data& structure) {
  const Level &rows = structure.levels[1], &cols = structure.levels[2];
  Coordinates result{
      .num_rows = rows.length, .num_cols = cols.length, .cols = cols.indices, .num_outer = structure.levels[0].length};
  for (size_t r = 0; r + 1 < rows.indptr.size(); ++r)
    for (int32_t p = rows.indptr[r]; p < rows.indptr[r + 1]; ++p) {
      const auto row = static_cast<size_t>(p);
      const auto length = static_cast<size_t>(cols.indptr[row + 1] - cols.indptr[row]);
      result.outer.insert(result.outer.end(), length, static_cast<int32_t>(r));
      result.rows.insert(result.rows.end(), length, rows.indices[row]);
    }
  return result;
}

}  // namespace

Coordinates coordinates_of(const Structure::Data& structure) {
  const auto is_compressed = [](const Level& level) { return level.is_sparse && level.is_variable; };
  const bool is_stack =
      structure.levels.size() == 3 && is_compressed(structure.levels[1]) && is_compressed(structure.levels[2]);
  if (is_stack) return coordinates_of_stack(structure);
  const bool is_csr = structure.levels.size() == 2 && is_compressed(structure.levels[1]);
  check(is_csr, ErrorCode::unsupported,
        "decompose_format: required: a structure in CSR, or of relations_from_coo; supported: csr()");
  const Level& level = structure.levels[1];
  Coordinates result{.num_rows = structure.levels[0].length, .num_cols = level.length, .cols = level.indices};
  result.rows.reserve(level.indices.size());
  for_held_rows(level.indptr, [&](int64_t row, int32_t begin, int32_t end) {
    result.rows.insert(result.rows.end(), static_cast<size_t>(end - begin), static_cast<int32_t>(row));
  });
  return result;
}

}  // namespace weft::sparse
