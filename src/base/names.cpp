#include "base/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int next = std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = row[j + 1];
      row[j + 1] = next;
    }
  }
  return row.back();
}

}  // namespace

const std::string& nearest_name(std::string_view name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return "";
  const std::string& nearest = nearest_name(name, known);
  const bool is_near = edit_distance(name, nearest) <= std::max(2, static_cast<int>(name.size()) / 3);
  return is_near ? "; did you mean '" + nearest + "'?" : "";
}

}  // namespace weft
