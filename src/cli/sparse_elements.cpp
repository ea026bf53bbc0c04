#include "cli/sparse_elements.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/names.h"
#include "sparse/files/element_lines.h"

namespace weft::cli {
namespace {

// Coordinates of elements, a list for each dimension.
using Lists = std::vector<std::span<const int32_t>>;

Lists lists_of(const sparse::Coo& coo) { return {coo.rows, coo.cols}; }
Lists lists_of(const sparse::CooTensor& coo) { return {coo.coordinates.begin(), coo.coordinates.end()}; }

int compare_places(const Lists& lists, size_t a, size_t b) {
  for (const std::span<const int32_t> list : lists)
    if (list[a] != list[b]) return list[a] < list[b] ? -1 : 1;
  return 0;
}

// Elements by place; those of one place as they stand in the file.
std::vector<size_t> order_of(const Lists& lists) {
  std::vector<size_t> order(lists[0].size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return compare_places(lists, a, b) < 0; });
  return order;
}

// `values` become sums; gives the first element of each place.
std::vector<size_t> sum_by_place(const Lists& lists, std::vector<double>& values) {
  const std::vector<size_t> order = order_of(lists);
  std::vector<size_t> first;
  std::vector<double> sums;
  for (size_t p = 0; p < order.size(); ++p) {
    const bool is_new = p == 0 || compare_places(lists, order[p - 1], order[p]) != 0;
    if (is_new) first.push_back(order[p]);
    if (values.empty()) continue;
    if (is_new) sums.push_back(0);
    sums.back() += values[order[p]];
  }
  values = std::move(sums);
  return first;
}

std::vector<int32_t> picked(const std::vector<int32_t>& list, const std::vector<size_t>& elements) {
  std::vector<int32_t> result;
  result.reserve(elements.size());
  for (const size_t e : elements) result.push_back(list[e]);
  return result;
}

void refuse_in(const std::string& path, const Lists& lists, const std::vector<int>& lines, size_t first, size_t again) {
  const bool is_packed = path.ends_with(".gz");
  const std::string_view plain = std::string_view(path).substr(0, path.size() - (is_packed ? 3 : 0));
  const int begin = plain.ends_with(".mtx") || plain.ends_with(".tns") ? 1 : 0;  // as the file counts
  const std::string place =
      joined(lists, [&](std::span<const int32_t> list) { return std::to_string(int64_t{list[again]} + begin); });
  const std::string before = lines[first] == lines[again] ? "" : fmt::format(", first in line {}", lines[first]);
  fail(ErrorCode::invalid_argument,
       "'{}', line {}: element ({}) stands twice{}; --sum-duplicates makes one element of both, their sum", path,
       lines[again], place, before);
}

template <class LinesOf>
void refuse_first(const std::string& path, const Lists& lists, const LinesOf& lines_of) {
  const std::vector<size_t> order = order_of(lists);
  size_t first = order.size(), again = order.size();
  for (size_t p = 1; p < order.size(); ++p)
    if (order[p] < again && compare_places(lists, order[p - 1], order[p]) == 0) first = order[p - 1], again = order[p];
  if (again < order.size()) refuse_in(path, lists, lines_of(), first, again);
}

}  // namespace

void sum_duplicates(sparse::MatrixData& data) {
  const std::vector<size_t> first = sum_by_place(lists_of(data.coo), data.values);
  for (std::vector<int32_t>* list : {&data.coo.rows, &data.coo.cols}) *list = picked(*list, first);
}

void sum_duplicates(sparse::TensorData& data) {
  const std::vector<size_t> first = sum_by_place(lists_of(data.coo), data.values);
  for (std::vector<int32_t>& list : data.coo.coordinates) list = picked(list, first);
}

void refuse_duplicates(const std::string& path, std::string_view text, const sparse::Coo& coo) {
  refuse_first(path, lists_of(coo), [&] { return sparse::lines_of_matrix(path, text); });
}

void refuse_duplicates(const std::string& path, std::string_view text, const sparse::CooTensor& coo) {
  refuse_first(path, lists_of(coo), [&] { return sparse::lines_of_tensor(path, text); });
}

}  // namespace weft::cli
