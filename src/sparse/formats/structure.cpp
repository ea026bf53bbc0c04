#include "sparse/formats/structure.h"

#include <algorithm>

#include "base/check.h"

namespace weft::sparse {
namespace {

void check_extent(int64_t extent, const char* what) {
  check(extent >= 0 && extent <= INT32_MAX, ErrorCode::invalid_argument,
        "structure: {} is {}; 0 to {} fit indices of 32 bits", what, extent, INT32_MAX);
}

void check_indptr(const Level& level, int64_t num_parents) {
  const auto size = static_cast<int64_t>(level.indptr.size());
  check(size == num_parents + 1, ErrorCode::invalid_indptr, "structure: indptr has {} elements; {} rows need {}", size,
        num_parents, num_parents + 1);
  check(level.indptr[0] == 0, ErrorCode::invalid_indptr, "structure: indptr[0] is {}; it begins at 0", level.indptr[0]);
  for (size_t i = 1; i < level.indptr.size(); ++i)
    check(level.indptr[i] >= level.indptr[i - 1], ErrorCode::invalid_indptr,
          "structure: indptr[{}] is {}, less than the {} before it; an indptr never falls", i, level.indptr[i],
          level.indptr[i - 1]);
}

// Of one row: they rise, and lie below the length; places that are not used follow, where the axis may have them.
void check_row(const Level& level, int64_t begin, int64_t end, int64_t row) {
  bool padded = false;
  for (int64_t p = begin; p < end; ++p) {
    const int32_t index = level.indices[static_cast<size_t>(p)];
    if (!level.is_variable && index == level.length) {
      padded = true;
      continue;
    }
    check(index >= 0 && index < level.length, ErrorCode::invalid_argument,
          "structure: indices[{}], of row {}, is {}; allowed are 0 to {}", p, row, index, level.length - 1);
    check(!padded, ErrorCode::invalid_argument,
          "structure: indices[{}], of row {}, follows a place that is not used; those stand last", p, row);
    const bool rises = p == begin || level.indices[static_cast<size_t>(p - 1)] < index;
    check(rises, ErrorCode::invalid_argument,
          "structure: indices[{}], of row {}, is {} after {}; the indices of a row rise, and none stands twice", p, row,
          index, p == begin ? 0 : level.indices[static_cast<size_t>(p - 1)]);
  }
}

}  // namespace

Structure make_structure(std::vector<Level> levels) {
  ensure(!levels.empty() && !levels[0].is_sparse && !levels[0].is_variable, "a structure begins with a dense axis");
  check_extent(levels[0].length, "the number of rows");
  levels[0].num_positions = levels[0].length;
  for (size_t l = 1; l < levels.size(); ++l) {
    Level& level = levels[l];
    const int64_t parents = levels[l - 1].num_positions;
    check_extent(level.length, "the number of columns");
    if (level.is_variable) {
      check_indptr(level, parents);
      level.num_positions = level.indptr.back();
    } else {
      check_extent(level.per_parent, "the width of a row");
      check(parents == 0 || level.per_parent <= INT32_MAX / parents, ErrorCode::invalid_argument,
            "structure: {} rows of {} places do not fit indices of 32 bits", parents, level.per_parent);
      level.num_positions = parents * level.per_parent;
    }
    if (!level.is_sparse) {
      for (int64_t row = 0; level.is_variable && row < parents; ++row) {
        const int64_t length = level.indptr[static_cast<size_t>(row) + 1] - level.indptr[static_cast<size_t>(row)];
        check(length <= level.length, ErrorCode::invalid_indptr,
              "structure: row {} has {} elements; at most {} are allowed", row, length, level.length);
      }
      continue;
    }
    check(static_cast<int64_t>(level.indices.size()) == level.num_positions, ErrorCode::invalid_indptr,
          "structure: there are {} indices; indptr or width says {}", level.indices.size(), level.num_positions);
    for (int64_t row = 0; row < parents; ++row) {
      const int64_t begin = level.is_variable ? level.indptr[static_cast<size_t>(row)] : row * level.per_parent;
      const int64_t end = level.is_variable ? level.indptr[static_cast<size_t>(row) + 1] : begin + level.per_parent;
      check_row(level, begin, end, row);
    }
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

std::vector<int32_t> narrowed(const char* name, std::span<const int64_t> wide, ErrorCode code) {
  std::vector<int32_t> result(wide.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    check(wide[i] >= 0 && wide[i] <= INT32_MAX, code, "structure: {}[{}] is {}; 0 to {} fit indices of 32 bits", name,
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
                          .indptr = narrowed("indptr", indptr, ErrorCode::invalid_indptr),
                          .indices = narrowed("indices", indices, ErrorCode::invalid_argument)}});
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
  for (size_t row = 0; row + 1 < level.indptr.size(); ++row)
    result.rows.insert(result.rows.end(), static_cast<size_t>(level.indptr[row + 1] - level.indptr[row]),
                       static_cast<int32_t>(row));
  return result;
}

}  // namespace weft::sparse
