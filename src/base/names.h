// Lists of names, and the nearest right name for a wrong one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft {

// "; did you mean 'cap'?" for the nearest of `known`, or nothing when none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);
// The nearest of `known`, near or not; `known` is not empty.
const std::string& nearest_name(std::string_view name, const std::vector<std::string>& known);

// "a, b, c".
template <class Names>
std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace weft
