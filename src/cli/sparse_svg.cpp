#include "cli/sparse_svg.h"

#include <fmt/format.h>

#include <sstream>

#include "base/check.h"
#include "sparse/formats/structure.h"
#include "sparse/operator.h"

namespace weft::cli {
namespace {

constexpr const char* kColours[] = {"#4c78a8", "#f58518", "#54a24b", "#e45756",
                                    "#72b7b2", "#b279a2", "#9d755d", "#bab0ac"};
constexpr double kSide = 480;
constexpr size_t kMaxDots = 20000;

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return result;
}

// Elements in the colour of the rule that takes them; of many, every n-th.
void add_matrix(std::string& svg, const sparse::Coordinates& all, const std::vector<sparse::FormatRewriteRule>& rules) {
  sparse::Coordinates left = all;
  const size_t step = all.size() / kMaxDots + 1;
  const double x_scale = kSide / static_cast<double>(std::max<int64_t>(all.num_cols, 1));
  const double y_scale = kSide / static_cast<double>(std::max<int64_t>(all.num_rows, 1));
  const auto dot = [&](int32_t row, int32_t col, const char* colour) {
    svg += fmt::format("<rect x='{:.2f}' y='{:.2f}' width='{:.2f}' height='{:.2f}' fill='{}'/>\n", 20 + col * x_scale,
                       20 + row * y_scale, std::max(x_scale, 1.), std::max(y_scale, 1.), colour);
  };
  svg += fmt::format("<rect x='20' y='20' width='{0}' height='{0}' fill='none' stroke='#888'/>\n", kSide);
  for (size_t r = 0; r < std::max<size_t>(rules.size(), 1); ++r) {
    const std::vector<char> taken =
        rules.empty() ? std::vector<char>(left.size(), 1) : rules[r].take(left, r + 1 == rules.size()).taken;
    const char* colour = kColours[r % std::size(kColours)];
    sparse::Coordinates rest{.num_rows = all.num_rows, .num_cols = all.num_cols};
    size_t count = 0;
    for (size_t e = 0; e < left.size(); ++e) {
      if (taken[e] != 0 && count++ % step == 0) dot(left.rows[e], left.cols[e], colour);
      if (taken[e] != 0) continue;
      rest.rows.push_back(left.rows[e]);
      rest.cols.push_back(left.cols[e]);
    }
    left = std::move(rest);
    if (!rules.empty())
      svg += fmt::format("<text x='20' y='{}' fill='{}' font-size='12'>{}: {} elements</text>\n",
                         40 + kSide + 16. * static_cast<double>(r), colour, escaped(rules[r].name), count);
  }
}

}  // namespace

std::string sparse_svg(const sparse::Operator& op, const std::map<std::string, sparse::Structure>& structures) {
  std::string body;
  double top = 20, left = 20;
  const auto& decompositions = op.impl().made.schedule.decompositions();
  size_t num_rules = 0;
  if (!structures.empty()) {
    const auto& [axis, structure] = *structures.begin();
    const sparse::Structure::Data& data = *structure.data();
    check(data.levels.size() == 2 && data.levels[1].is_sparse && data.levels[1].is_variable, ErrorCode::unsupported,
          "--svg: the structure of axis '{}': required: a matrix in CSR; stacks, tensors and other formats have no "
          "picture. Without --matrix the loops alone are drawn",
          axis);
    const std::vector<sparse::FormatRewriteRule> none;
    const auto& rules = decompositions.empty() ? none : decompositions[0].rules;
    num_rules = rules.size();
    add_matrix(body, sparse::coordinates_of(data), rules);
    left += kSide + 30;
  }
  std::istringstream nest(op.text("stage2"));
  size_t widest = 0;
  for (std::string line; std::getline(nest, line); top += 15) {
    widest = std::max(widest, line.size());
    body += fmt::format("<text x='{}' y='{}' font-size='12' xml:space='preserve'>{}</text>\n", left, top + 12,
                        escaped(line));
  }
  const double height = std::max(top + 20, kSide + 60 + 16. * static_cast<double>(num_rules));
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}' font-family='monospace'>\n"
      "<rect width='100%' height='100%' fill='white'/>\n{}</svg>\n",
      left + 7.3 * static_cast<double>(widest) + 20, height, body);
}

}  // namespace weft::cli
