// What a format's axes store, from the coordinates that its elements go to.
#include <algorithm>

#include "base/check.h"
#include "sparse/formats/rule.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

using Coordinate = std::map<std::string, std::vector<int64_t>>;

// Puts elements at the coordinates that the maps say, one axis of the structure after another.
class Structuring {
 public:
  Structuring(const FormatRewriteRule& rule, const MatrixAxes& matrix, const Coordinates& left, Coordinate at,
              std::vector<char> taken)
      : rule_(rule), left_(left), at_(std::move(at)) {
    for (const auto& [length, value] :
         {std::pair(matrix.num_rows, left.num_rows), std::pair(matrix.num_cols, left.num_cols)})
      if (length->op == Op::variable) numbers_.scalars[length->name] = value;
    for (const std::string& axis : rule.buffer_axes) at_[axis].resize(left.size(), 0);
    result_.taken = std::move(taken);
    place_.assign(left.size(), 0);
  }

  FormatArrays run() {
    int64_t parents = 1;
    for (const std::string& name : rule_.buffer_axes) {
      const Axis& axis =
          *std::find_if(rule_.axes.begin(), rule_.axes.end(), [&](const Axis& a) { return a.name == name; });
      const int64_t length = evaluate(axis.length, numbers_);
      check_coordinates(axis, length);
      if (axis.parent.empty()) {
        parents = length;
        place_ = at_.at(name);
      } else {
        parents = axis.is_variable ? variable(axis, parents) : fixed(axis, parents, length);
      }
    }
    return std::move(result_);
  }

 private:
  void check_coordinates(const Axis& axis, int64_t length) const {
    for (size_t e = 0; e < left_.size(); ++e) {
      if (result_.taken[e] == 0) continue;
      const int64_t x = at_.at(axis.name)[e];
      check(x >= 0 && x < length, ErrorCode::invalid_argument,
            "format {}: the element at row {}, column {} goes to coordinate {} of axis '{}', which has {}", rule_.name,
            left_.rows[e], left_.cols[e], x, axis.name, length);
    }
  }

  // Elements that are still in, by the parent's place, then the coordinate.
  std::vector<size_t> sorted(const std::string& axis) const {
    std::vector<size_t> order;
    for (size_t e = 0; e < left_.size(); ++e)
      if (result_.taken[e] != 0) order.push_back(e);
    const auto key = [&](size_t e) { return std::pair(place_[e], at_.at(axis)[e]); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    return order;
  }

  int64_t variable(const Axis& axis, int64_t parents) {
    std::vector<int32_t> indptr(static_cast<size_t>(parents) + 1, 0), indices;
    std::pair<int64_t, int64_t> before{-1, -1};
    for (const size_t e : sorted(axis.name)) {
      const std::pair<int64_t, int64_t> here{place_[e], at_.at(axis.name)[e]};
      if (here != before) {
        indices.push_back(static_cast<int32_t>(here.second));
        ++indptr[static_cast<size_t>(here.first) + 1];
      }
      before = here;
      place_[e] = static_cast<int64_t>(indices.size()) - 1;
    }
    for (size_t p = 0; p + 1 < indptr.size(); ++p) indptr[p + 1] += indptr[p];
    const auto count = static_cast<int64_t>(indices.size());
    result_.scalars[axis.nnz->name] = count;
    result_.arrays[axis.indptr] = std::move(indptr);
    result_.arrays[axis.indices] = std::move(indices);
    return count;
  }

  int64_t fixed(const Axis& axis, int64_t parents, int64_t length) {
    const int64_t width = evaluate(axis.nnz, numbers_);
    check(parents == 0 || (width >= 1 && width <= INT32_MAX / parents), ErrorCode::invalid_argument,
          "format {}: {} rows of {} places do not fit indices of 32 bits", rule_.name, parents, width);
    std::vector<int32_t> indices(static_cast<size_t>(parents * width), static_cast<int32_t>(length));
    std::pair<int64_t, int64_t> before{-1, -1};
    int64_t filled = 0;
    for (const size_t e : sorted(axis.name)) {
      const std::pair<int64_t, int64_t> here{place_[e], at_.at(axis.name)[e]};
      if (here.first != before.first) filled = 0;
      if (here != before) ++filled;
      before = here;
      result_.taken[e] = filled <= width;
      if (filled > width) continue;  // of a longer row the first ones
      place_[e] = here.first * width + filled - 1;
      indices[static_cast<size_t>(place_[e])] = static_cast<int32_t>(here.second);
    }
    result_.arrays[axis.indices] = std::move(indices);
    return parents * width;
  }

  const FormatRewriteRule& rule_;
  const Coordinates& left_;
  loop::Memory numbers_;
  Coordinate at_;               // new coordinates of each element
  std::vector<int64_t> place_;  // positions of the axis before
  FormatArrays result_;
};

}  // namespace

FormatArrays stored_at(const FormatRewriteRule& rule, const MatrixAxes& matrix, const Coordinates& left,
                       std::map<std::string, std::vector<int64_t>> at, std::vector<char> taken) {
  return Structuring(rule, matrix, left, std::move(at), std::move(taken)).run();
}

}  // namespace weft::sparse
