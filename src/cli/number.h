// Numbers of the command line. All of a text has to be the number: no sign but a minus, no space, no other base.
//
//   const int threads =
//       parse_number<int>("--threads", "8", {"0 to 1024", [](double n) { return n >= 0 && n <= 1024; }});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// What a number may be, in words that follow "allowed are", and in code. Neither: all that its type holds.
struct Allowed {
  std::string words = {};
  std::function<bool(double)> holds = {};
};

// Throws UsageError for a text that is no number, Error(invalid_argument) for one that is not allowed. `name` is the
// option's. Value: int, int64_t, uint64_t, float or double.
template <class Value>
Value parse_number(std::string_view name, std::string_view text, const Allowed& allowed);
// Numbers with a comma between any two; each of them is checked.
std::vector<int> parse_list(std::string_view name, std::string_view text, const Allowed& allowed);
// A whole number, 0 or more, and one of the units, in any case of letters and with a space before it or none; a number
// without a unit counts as it is.
uint64_t parse_with_unit(std::string_view name, std::string_view text, const std::map<std::string, uint64_t>& units,
                         uint64_t highest);

}  // namespace weft::cli
