#include "cli/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "cli/arguments.h"

namespace weft::cli {
namespace {

template <class Value>
constexpr const char* kKind = std::is_floating_point_v<Value> ? "number" : "whole number";

// What a message repeats: all of a short value, the begin of a long one.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
}

template <class Value>
std::string words_of(const Allowed& allowed) {
  if (!allowed.words.empty()) return allowed.words;
  using Limits = std::numeric_limits<Value>;
  return fmt::format("{} to {}", Limits::lowest(), Limits::max());
}

// A whole number, whatever its size.
bool is_whole(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

enum class Reading { number, none, too_large };

template <class Value>
Reading read(std::string_view text, Value& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if constexpr (std::is_unsigned_v<Value>) {
    if (text.starts_with('-') && is_whole(text)) return Reading::too_large;
  }
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return Reading::none;
  if (error == std::errc::result_out_of_range) return Reading::too_large;
  if constexpr (std::is_floating_point_v<Value>) {
    if (!std::isfinite(value)) return Reading::none;  // from_chars knows words for these
  }
  return Reading::number;
}

// One number of `whole`, the option's value; `place` says which one.
template <class Value>
Value parse_part(std::string_view name, std::string_view whole, std::string_view text, const std::string& place,
                 const Allowed& allowed) {
  Value value{};
  const Reading reading = read(text, value);
  if (reading == Reading::none)
    throw UsageError(fmt::format("{} = '{}': no {}{}; allowed are {}", name, shown(whole), kKind<Value>, place,
                                 words_of<Value>(allowed)));
  check(reading == Reading::number && (!allowed.holds || allowed.holds(static_cast<double>(value))),
        ErrorCode::invalid_argument, "{} = '{}'{}; allowed are {}", name, shown(whole), place,
        words_of<Value>(allowed));
  return value;
}

}  // namespace

template <class Value>
Value parse_number(std::string_view name, std::string_view text, const Allowed& allowed) {
  return parse_part<Value>(name, text, text, "", allowed);
}
template int parse_number(std::string_view, std::string_view, const Allowed&);
template int64_t parse_number(std::string_view, std::string_view, const Allowed&);
template uint64_t parse_number(std::string_view, std::string_view, const Allowed&);
template float parse_number(std::string_view, std::string_view, const Allowed&);
template double parse_number(std::string_view, std::string_view, const Allowed&);

std::vector<int> parse_list(std::string_view name, std::string_view text, const Allowed& allowed) {
  std::vector<int> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    values.push_back(parse_part<int>(name, text, text.substr(begin, end - begin),
                                     fmt::format(" at place {}", values.size() + 1), allowed));
    begin = end + 1;
  }
  return values;
}

uint64_t parse_with_unit(std::string_view name, std::string_view text, const std::map<std::string, uint64_t>& units,
                         uint64_t highest) {
  const size_t digits = std::min(text.find_first_not_of("-0123456789"), text.size());
  std::string unit(text.substr(digits));
  if (unit.starts_with(' ')) unit.erase(0, 1);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::vector<std::string> names;
  for (const auto& [known, factor] : units) names.push_back(known);
  const auto factor = units.find(unit);
  if (!is_whole(text.substr(0, digits)) || (factor == units.end() && digits < text.size()))
    throw UsageError(fmt::format("{} = '{}': no whole number with a unit; allowed are units {}", name, shown(text),
                                 fmt::join(names, ", ")));
  const uint64_t times = factor == units.end() ? 1 : factor->second;
  uint64_t count = 0;
  const bool fits = read(text.substr(0, digits), count) == Reading::number && count <= highest / times;
  const auto one = std::ranges::find(units, uint64_t{1}, [](const auto& known) { return known.second; });
  check(fits, ErrorCode::invalid_argument, "{} = '{}'; allowed are 0 to {} {}", name, shown(text), highest,
        one == units.end() ? "" : one->first);
  return count * times;
}

}  // namespace weft::cli
