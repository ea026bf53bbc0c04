// Formats of more than two levels, and diagonals: conversions from a list of elements.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "sparse/formats/structure.h"

namespace weft::sparse {
namespace {

void check_lengths(const CooTensor& coo) {
  check(!coo.extents.empty() && coo.extents.size() == coo.coordinates.size() && coo.extents.size() <= 6,
        ErrorCode::invalid_argument,
        "coo: there are {} extents and {} lists of coordinates; 1 to 6 of each are allowed", coo.extents.size(),
        coo.coordinates.size());
  const size_t count = coo.coordinates[0].size();
  check(count <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
        "coo: {} elements do not fit indices of 32 bits", count);
  for (size_t d = 0; d < coo.extents.size(); ++d) {
    check(coo.extents[d] >= 0 && coo.extents[d] <= INT32_MAX, ErrorCode::invalid_argument,
          "coo: dimension {} has an extent of {}; 0 to {} fit indices of 32 bits", d, coo.extents[d], INT32_MAX);
    check(coo.coordinates[d].size() == count, ErrorCode::invalid_argument,
          "coo: there are {} coordinates of dimension 0 and {} of dimension {}", count, coo.coordinates[d].size(), d);
    for (size_t e = 0; e < count; ++e)
      check(coo.coordinates[d][e] >= 0 && coo.coordinates[d][e] < coo.extents[d], ErrorCode::invalid_argument,
            "coo: element {} has coordinate {} in dimension {}, outside of {}", e, coo.coordinates[d][e], d,
            coo.extents[d]);
  }
}

}  // namespace

Converted csf_from_coo(const CooTensor& coo) {
  check_lengths(coo);
  const size_t rank = coo.extents.size(), count = coo.coordinates[0].size();
  Converted result{.order = std::vector<int64_t>(count)};
  std::iota(result.order.begin(), result.order.end(), 0);
  const auto at = [&](size_t d, int64_t e) { return coo.coordinates[d][static_cast<size_t>(e)]; };
  // The first dimension in which two elements differ; the rank where they are the same.
  const auto difference = [&](int64_t a, int64_t b) {
    size_t d = 0;
    while (d < rank && at(d, a) == at(d, b)) ++d;
    return d;
  };
  std::sort(result.order.begin(), result.order.end(), [&](int64_t a, int64_t b) {
    const size_t d = difference(a, b);
    return d < rank && at(d, a) < at(d, b);
  });
  std::vector<Level> levels(rank + 1);
  levels[0].length = 1;
  for (size_t d = 0; d < rank; ++d)
    levels[d + 1] = {.is_sparse = true, .is_variable = true, .length = coo.extents[d], .indptr = {0}};
  levels[1].indptr = {0, 0};  // one list below the root
  for (size_t p = 0; p < count; ++p) {
    const int64_t e = result.order[p];
    const size_t from = p == 0 ? 0 : difference(result.order[p - 1], e);
    check(from < rank, ErrorCode::invalid_argument, "coo: element {} stands twice, also as {}; sum such elements first",
          e, p == 0 ? 0 : result.order[p - 1]);
    for (size_t d = from; d < rank; ++d) {
      // A new position, with a list one level down that ends where the last of its elements does.
      levels[d + 1].indices.push_back(at(d, e));
      if (d + 1 < rank) levels[d + 2].indptr.push_back(0);
    }
    for (size_t d = 0; d < rank; ++d) levels[d + 1].indptr.back() = static_cast<int32_t>(levels[d + 1].indices.size());
  }
  result.structure = make_structure(std::move(levels));
  return result;
}

Converted relations_from_coo(const CooTensor& coo) {
  check(coo.extents.size() == 3, ErrorCode::invalid_argument,
        "coo: there are {} dimensions; three are expected: relation, row, column", coo.extents.size());
  const Converted csf = csf_from_coo(coo);
  const std::vector<Level>& levels = csf.structure.data()->levels;
  // The sparse relations of the list become all there are.
  Level rows = levels[2];
  rows.indptr.assign(static_cast<size_t>(coo.extents[0]) + 1, 0);
  for (size_t r = 0; r < levels[1].indices.size(); ++r)
    rows.indptr[static_cast<size_t>(levels[1].indices[r]) + 1] = levels[2].indptr[r + 1] - levels[2].indptr[r];
  std::partial_sum(rows.indptr.begin(), rows.indptr.end(), rows.indptr.begin());
  return {make_structure({{.length = coo.extents[0]}, std::move(rows), levels[3]}), csf.order};
}

Converted dcsr_from_coo(const Coo& coo) {
  return csf_from_coo({.extents = {coo.num_rows, coo.num_cols}, .coordinates = {coo.rows, coo.cols}});
}

Converted sr_bcrs_from_coo(const Coo& coo, int64_t t, int64_t g) {
  check(t >= 1 && t <= 256 && g >= 1 && g <= 4096, ErrorCode::invalid_argument,
        "sr_bcrs({}, {}): strips have 1 to 256 rows and groups 1 to 4096 tiles", t, g);
  sorted_order(coo);  // checks
  const int64_t strips = (coo.num_rows + t - 1) / t;
  // Tiles by strip and column.
  std::map<std::pair<int64_t, int32_t>, std::vector<int64_t>> tiles;
  for (size_t e = 0; e < coo.rows.size(); ++e) {
    auto& tile = tiles[{coo.rows[e] / t, coo.cols[e]}];
    tile.resize(static_cast<size_t>(t), -1);
    tile[static_cast<size_t>(coo.rows[e] % t)] = static_cast<int64_t>(e);
  }
  Level groups{.is_variable = true, .length = (coo.num_cols + g - 1) / g};
  Level cols{.is_sparse = true, .length = coo.num_cols, .per_parent = g};
  Converted result;
  std::vector<int64_t> strip_of;  // each group's
  const auto width = static_cast<size_t>(g);
  for (auto tile = tiles.begin(); tile != tiles.end();) {
    const int64_t strip = tile->first.first;
    for (; tile != tiles.end() && tile->first.first == strip; ++tile) {
      cols.indices.push_back(tile->first.second);
      result.order.insert(result.order.end(), tile->second.begin(), tile->second.end());
    }
    cols.indices.resize((cols.indices.size() + width - 1) / width * width, static_cast<int32_t>(coo.num_cols));
    check(cols.indices.size() * static_cast<size_t>(t) <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
          "sr_bcrs({}, {}): the values do not fit indices of 32 bits", t, g);
    result.order.resize(cols.indices.size() * static_cast<size_t>(t), -1);
    strip_of.resize(cols.indices.size() / width, strip);
  }
  groups.indptr = indptr_of(strips, strip_of.size(), [&](size_t p) { return strip_of[p]; });
  result.structure = make_structure({{.length = strips}, std::move(groups), std::move(cols)});
  return result;
}

Diagonals dia_from_coo(const Coo& coo) {
  sorted_order(coo);  // checks
  std::map<int64_t, size_t> place;
  for (size_t e = 0; e < coo.rows.size(); ++e) place[int64_t{coo.cols[e]} - coo.rows[e]] = 0;
  check(coo.num_rows == 0 || static_cast<int64_t>(place.size()) <= INT32_MAX / coo.num_rows,
        ErrorCode::invalid_argument, "dia: {} diagonals of {} rows do not fit indices of 32 bits", place.size(),
        coo.num_rows);
  Diagonals result;
  for (auto& [offset, number] : place) {
    number = result.offsets.size();
    result.offsets.push_back(static_cast<int32_t>(offset));
  }
  CooTensor numbers{.extents = {coo.num_rows + coo.num_cols}, .coordinates = {result.offsets}};
  for (int32_t& number : numbers.coordinates[0]) number += static_cast<int32_t>(coo.num_rows);
  result.structure = csf_from_coo(numbers).structure;
  result.order.assign(place.size() * static_cast<size_t>(coo.num_rows), -1);
  for (size_t e = 0; e < coo.rows.size(); ++e)
    result.order[place[int64_t{coo.cols[e]} - coo.rows[e]] * static_cast<size_t>(coo.num_rows) +
                 static_cast<size_t>(coo.rows[e])] = static_cast<int64_t>(e);
  return result;
}

}  // namespace weft::sparse
