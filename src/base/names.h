// Lists of names, and the nearest right name for a wrong one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// "; did you mean 'cap'?" for the nearest of `known`, or nothing when none is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);
// The nearest of `known`, near or not; `known` is not empty.
const std::string& nearest_name(std::string_view name, const std::vector<std::string>& known);

// "1 file", "3 files".
std::string counted(int64_t number, std::string_view noun);

// "a, b, c": what `text_of` makes of each item.
template <class List, class Text>
std::string joined(const List& list, const Text& text_of) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + std::string(text_of(item));
  return text;
}
template <class Names>
std::string joined(const Names& names) {
  return joined(names, [](const std::string& name) -> const std::string& { return name; });
}

}  // namespace weft
