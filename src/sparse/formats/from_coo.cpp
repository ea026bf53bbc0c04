// Conversions from a list of elements in any order: rows, and blocks.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "sparse/formats/structure.h"

namespace weft::sparse {
namespace {

// The list's places by row, then column.
std::vector<int64_t> sorted_places(const Coo& coo) {
  check(coo.rows.size() == coo.cols.size(), ErrorCode::invalid_argument, "coo: there are {} rows and {} columns",
        coo.rows.size(), coo.cols.size());
  check(coo.rows.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
        "coo: {} elements do not fit indices of 32 bits", coo.rows.size());
  for (const auto& [extent, what] : {std::pair(coo.num_rows, "rows"), std::pair(coo.num_cols, "columns")})
    check(extent >= 0 && extent <= INT32_MAX, ErrorCode::invalid_argument,
          "coo: there are {} {}; 0 to {} fit indices of 32 bits", extent, what, INT32_MAX);
  for (size_t e = 0; e < coo.rows.size(); ++e)
    check(coo.rows[e] >= 0 && coo.rows[e] < coo.num_rows && coo.cols[e] >= 0 && coo.cols[e] < coo.num_cols,
          ErrorCode::invalid_argument, "coo: element {} is at row {}, column {}, outside of {} x {}", e, coo.rows[e],
          coo.cols[e], coo.num_rows, coo.num_cols);
  std::vector<int64_t> order(coo.rows.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int64_t e) {
    return std::pair(coo.rows[static_cast<size_t>(e)], coo.cols[static_cast<size_t>(e)]);
  };
  std::ranges::sort(order, {}, key);
  return order;
}

// Without a copy of the arrays.
Structure csr_of(int64_t num_rows, int64_t num_cols, std::vector<int32_t> indptr, std::vector<int32_t> indices) {
  std::vector<Level> levels(2);
  levels[0].length = num_rows;
  levels[1] = {.is_sparse = true,
               .is_variable = true,
               .length = num_cols,
               .indptr = std::move(indptr),
               .indices = std::move(indices)};
  return make_structure(std::move(levels));
}

}  // namespace

std::vector<int64_t> sorted_order(const Coo& coo) {
  const std::vector<int64_t> order = sorted_places(coo);
  const auto key = [&](int64_t e) {
    return std::pair(coo.rows[static_cast<size_t>(e)], coo.cols[static_cast<size_t>(e)]);
  };
  for (size_t p = 1; p < order.size(); ++p)
    check(key(order[p - 1]) != key(order[p]), ErrorCode::invalid_argument,
          "coo: row {}, column {} stands twice; merged() and summed() add such elements up", key(order[p]).first,
          key(order[p]).second);
  return order;
}

Merged merged(const Coo& coo) {
  Merged result{.coo = {.num_rows = coo.num_rows, .num_cols = coo.num_cols},
                .place = std::vector<int64_t>(coo.rows.size())};
  for (const int64_t e : sorted_places(coo)) {
    const int32_t row = coo.rows[static_cast<size_t>(e)], col = coo.cols[static_cast<size_t>(e)];
    const bool is_new = result.coo.rows.empty() || result.coo.rows.back() != row || result.coo.cols.back() != col;
    if (is_new) {
      result.coo.rows.push_back(row);
      result.coo.cols.push_back(col);
    }
    result.place[static_cast<size_t>(e)] = static_cast<int64_t>(result.coo.rows.size()) - 1;
  }
  return result;
}

std::vector<float> summed(const Merged& merged, std::span<const float> values) {
  check(values.size() == merged.place.size(), ErrorCode::invalid_shape,
        "values: there are {}; the list has {} elements", values.size(), merged.place.size());
  std::vector<float> sums(merged.coo.rows.size(), 0);
  for (size_t e = 0; e < values.size(); ++e) sums[static_cast<size_t>(merged.place[e])] += values[e];
  return sums;
}

Converted csr_from_coo(const Coo& coo) {
  Converted result{.order = sorted_order(coo)};
  std::vector<int32_t> indices;
  indices.reserve(result.order.size());
  for (const int64_t e : result.order) indices.push_back(coo.cols[static_cast<size_t>(e)]);
  std::vector<int32_t> indptr = indptr_of(coo.num_rows, result.order.size(),
                                          [&](size_t p) { return coo.rows[static_cast<size_t>(result.order[p])]; });
  result.structure = csr_of(coo.num_rows, coo.num_cols, std::move(indptr), std::move(indices));
  return result;
}

Converted csc_from_coo(const Coo& coo) {
  return csr_from_coo({.num_rows = coo.num_cols, .num_cols = coo.num_rows, .rows = coo.cols, .cols = coo.rows});
}

Converted ell_from_coo(const Coo& coo) {
  const Converted sorted = csr_from_coo(coo);
  const Level& rows = sorted.structure.data()->levels[1];
  int64_t width = 0;
  for (size_t r = 0; r + 1 < rows.indptr.size(); ++r)
    width = std::max<int64_t>(width, rows.indptr[r + 1] - rows.indptr[r]);
  check(coo.num_rows == 0 || width <= INT32_MAX / coo.num_rows, ErrorCode::invalid_argument,
        "ell: {} rows of {} places do not fit indices of 32 bits", coo.num_rows, width);
  const auto size = static_cast<size_t>(coo.num_rows * width);
  std::vector<int32_t> indices(size, static_cast<int32_t>(coo.num_cols));
  Converted result{.order = std::vector<int64_t>(size, -1)};
  for (size_t r = 0; r + 1 < rows.indptr.size(); ++r)
    for (int32_t p = rows.indptr[r]; p < rows.indptr[r + 1]; ++p) {
      const size_t place = r * static_cast<size_t>(width) + static_cast<size_t>(p - rows.indptr[r]);
      indices[place] = rows.indices[static_cast<size_t>(p)];
      result.order[place] = sorted.order[static_cast<size_t>(p)];
    }
  result.structure = ell(coo.num_rows, coo.num_cols, width, indices);
  return result;
}

namespace {

// Blocks that hold something by block row, then block column, and for each place in them its element, or -1.
struct Blocks {
  std::vector<std::pair<int32_t, int32_t>> places;
  std::vector<int64_t> order;
};

Blocks blocks_of(const Coo& coo, int64_t block) {
  const std::vector<int64_t> order = sorted_order(coo);
  Blocks result;
  auto& [places, elements] = result;
  const auto block_of = [&](int64_t e) {
    return std::pair(static_cast<int32_t>(coo.rows[static_cast<size_t>(e)] / block),
                     static_cast<int32_t>(coo.cols[static_cast<size_t>(e)] / block));
  };
  for (const int64_t e : order) places.push_back(block_of(e));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  check(static_cast<int64_t>(places.size()) <= INT32_MAX / (block * block), ErrorCode::invalid_argument,
        "bsr: {} blocks of {} x {} do not fit indices of 32 bits", places.size(), block, block);
  elements.assign(places.size() * static_cast<size_t>(block * block), -1);
  for (const int64_t e : order) {
    const auto at = std::lower_bound(places.begin(), places.end(), block_of(e)) - places.begin();
    const int64_t inner = coo.rows[static_cast<size_t>(e)] % block * block + coo.cols[static_cast<size_t>(e)] % block;
    elements[static_cast<size_t>(at * block * block + inner)] = e;
  }
  return result;
}

int64_t num_blocks(int64_t length, int64_t block) { return (length + block - 1) / block; }

}  // namespace

Converted bsr_from_coo(const Coo& coo, int64_t block) {
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "bsr: blocks are 1 to 256 wide, not {}", block);
  Blocks blocks = blocks_of(coo, block);
  const int64_t block_rows = num_blocks(coo.num_rows, block);
  std::vector<int32_t> indices;
  for (const auto& [row, col] : blocks.places) indices.push_back(col);
  std::vector<int32_t> indptr =
      indptr_of(block_rows, blocks.places.size(), [&](size_t p) { return blocks.places[p].first; });
  return {csr_of(block_rows, num_blocks(coo.num_cols, block), std::move(indptr), std::move(indices)),
          std::move(blocks.order)};
}

Converted dbsr_from_coo(const Coo& coo, int64_t block) {
  check(block >= 1 && block <= 256, ErrorCode::invalid_argument, "dbsr: blocks are 1 to 256 wide, not {}", block);
  Blocks blocks = blocks_of(coo, block);
  Level rows{.is_sparse = true, .is_variable = true, .length = num_blocks(coo.num_rows, block)};
  Level cols{.is_sparse = true, .is_variable = true, .length = num_blocks(coo.num_cols, block), .indptr = {0}};
  for (const auto& [row, col] : blocks.places) {
    if (rows.indices.empty() || rows.indices.back() != row) {
      rows.indices.push_back(row);
      cols.indptr.push_back(0);
    }
    cols.indices.push_back(col);
    cols.indptr.back() = static_cast<int32_t>(cols.indices.size());
  }
  rows.indptr = {0, static_cast<int32_t>(rows.indices.size())};
  return {make_structure({{.length = 1}, std::move(rows), std::move(cols)}), std::move(blocks.order)};
}

}  // namespace weft::sparse
