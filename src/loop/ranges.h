// Between which numbers integers lie, as far as each operation alone says: what fits 32 bits need not be computed in
// 64.
//
//   Ranges ranges(function);                            // parameters are 0 to kMostOfParameter
//   ranges.set("k", {0, 63});
//   ranges.of(variable("k") * 4 + 3);                   // {3, 255}
//   ranges.of(variable("n") * variable("k")).fits_int();  // false
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "loop/ir.h"

namespace weft::loop {

// Of integer parameters of functions that run on cards; what launches them checks it. Less than an int's most, so that
// one fits, too, that a loop's step, or a few iterations, lie behind.
inline constexpr int64_t kMostOfParameter = INT32_MAX - 0xffff;

struct Interval {
  int64_t least = INT64_MIN, most = INT64_MAX;  // these are no bounds
  // Of the variable of a loop of so many iterations.
  Interval of_loop() const { return {0, most == INT64_MAX ? most : std::max<int64_t>(most - 1, 0)}; }
  bool fits_int() const { return least >= INT32_MIN && most <= INT32_MAX; }
  // Of the same number where it is known to fit.
  Interval of_int() const { return {std::max<int64_t>(least, INT32_MIN), std::min<int64_t>(most, INT32_MAX)}; }
};

class Ranges {
 public:
  // Threads and CTAs of a card, whose variables are numbers of these.
  static constexpr const char* kAxes[] = {"threadIdx.x", "threadIdx.y", "threadIdx.z",
                                          "blockIdx.x",  "blockIdx.y",  "blockIdx.z"};
  static int64_t most_of_axis(std::string_view axis);

  Ranges() = default;
  explicit Ranges(const Function& function);
  void set(const std::string& variable, const Interval& interval) { variables_[variable] = interval; }
  void set_memory(const std::string& name, const Interval& elements) { buffers_[name] = elements; }
  Interval of(const Expr& e) const;

 private:
  std::map<std::string, Interval> variables_;
  std::map<std::string, Interval> buffers_;  // what elements are
};

}  // namespace weft::loop
