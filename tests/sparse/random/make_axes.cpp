// Axes of random programs, and what their structures store.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/sparse/random/make_program.h"

namespace weft::sparse::random {
namespace {

// What a program's axes are: roots, and chains below them. "J<I" is an axis J below I.
struct Layout {
  const char* axes;  // kinds: f and v dense, F and V sparse, fixed and variable
  int weight;
};
constexpr Layout kLayouts[] = {
    {"If JV<I", 30},      // CSR
    {"If JF<I", 10},      // ELL
    {"If Jv<I", 10},      // ragged
    {"Of IV<O JV<I", 8},  // DCSR
    {"If JV<I LV<J", 5},  // CSF below dense rows, relations
    {"If JF<I LV<J", 4},  //
    {"If Jv<I LF<J", 4},  // SR-BCRS
    {"If JV<I Lv<J", 4},  //
    {"Ef JF<E LF<E", 4},  // COO: elements, each with a row and a column
    {"If JV<I LV<I", 3},  // two structures below one root
    {"If Jf Lf", 14},     // dense
};

constexpr int64_t kExtents[] = {4, 4, 8, 2, 3, 5, 7, 1, 6, 0};
constexpr int kExtentWeights[] = {20, 10, 10, 12, 12, 10, 5, 7, 4, 3};

class AxesMaker {
 public:
  AxesMaker(Random& random, ProgramDef& program) : random_(random), program_(program) {}

  void make() {
    const Layout& layout = kLayouts[random_.pick_weighted(kLayouts, [](const Layout& l) { return l.weight; })];
    std::string text = layout.axes;
    text += " Kf";
    if (random_.chance(25)) text += " Rf";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(' ', at), text.size());
      const std::string word = text.substr(at, end - at);
      make_axis(word.substr(0, 1), word[1], word.size() > 3 ? word.substr(3) : "");
      at = end + 1;
    }
    // Dense axes of the coordinates below a parent, for buffers that are gathered from.
    const std::vector<AxisDef> made = program_.axes;
    for (const AxisDef& axis : made)
      if (!axis.parent.empty())
        program_.axes.push_back({.name = axis.name + "_", .length = axis.length, .length_text = axis.length_text});
  }

 private:
  // A length as a parameter or a number.
  std::pair<int64_t, std::string> make_length(const std::string& axis) {
    const size_t choice = random_.pick_weighted(kExtentWeights, [](int weight) { return weight; });
    const int64_t length = axis == "O" ? 1 : kExtents[choice];
    if (axis == "O" || random_.chance(25)) return {length, std::to_string(length)};
    const std::string param = fmt::format("n_{}", lower_case(axis));
    program_.params[param] = length;
    return {length, param};
  }
  void make_axis(const std::string& name, char letter, const std::string& parent) {
    AxisDef axis{.name = name, .parent = parent};
    std::tie(axis.length, axis.length_text) = make_length(name);
    axis.kind = letter == 'f'   ? AxisKind::dense_fixed
                : letter == 'v' ? AxisKind::dense_variable
                : letter == 'F' ? AxisKind::sparse_fixed
                                : AxisKind::sparse_variable;
    if (parent.empty()) {
      program_.axes.push_back(axis);
      return;
    }
    // Positions of the parent that are not used have nothing below.
    std::vector<bool> used;
    const std::vector<std::string> chain = program_.chain_of(parent);
    for (const auto& at : places_of(program_, chain)) used.push_back(std::count(at.begin(), at.end(), -1) == 0);
    const int64_t full_row = random_.below(5);
    int64_t longest = 0;
    for (size_t row = 0; row < used.size(); ++row) {
      std::vector<int64_t> stored;
      const int64_t percent = static_cast<int64_t>(row) == full_row ? 100 : random_.pick({0, 30, 60});
      for (int64_t c = 0; c < axis.length && used[row]; ++c)
        if (percent == 100 || random_.chance(static_cast<int>(percent))) stored.push_back(c);
      if (axis.kind == AxisKind::dense_variable)  // without gaps
        for (size_t c = 0; c < stored.size(); ++c) stored[c] = static_cast<int64_t>(c);
      longest = std::max(longest, static_cast<int64_t>(stored.size()));
      axis.rows.push_back(std::move(stored));
    }
    if (axis.kind == AxisKind::sparse_fixed) {
      axis.width = longest + (random_.chance(30) ? 1 : 0);
      if (random_.chance(25)) {  // so wide in every program of that text
        axis.count_text = std::to_string(axis.width);
      } else {
        axis.count_text = fmt::format("w_{}", lower_case(name));
        program_.params[axis.count_text] = axis.width;
      }
    } else {
      axis.count_text = fmt::format("c_{}", lower_case(name));
      program_.params[axis.count_text] = axis.num_positions();
    }
    axis.wide_index = axis.is_sparse() && random_.chance(10);
    program_.axes.push_back(axis);
  }

  Random& random_;
  ProgramDef& program_;
};

}  // namespace

void make_axes(Random& random, ProgramDef& program) { AxesMaker(random, program).make(); }

}  // namespace weft::sparse::random
