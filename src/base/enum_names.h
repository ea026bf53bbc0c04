// Names of enumerators that count up from 0, and the way back.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace weft {

inline constexpr std::string_view kNoEnumerator = "unknown";

template <class Enum, size_t N>
constexpr std::string_view enum_name(const std::string_view (&names)[N], Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : kNoEnumerator;
}

// The enumerator that to_string calls so.
template <class Enum>
std::optional<Enum> enum_from_string(std::string_view name) {
  for (int i = 0; to_string(static_cast<Enum>(i)) != kNoEnumerator; ++i)
    if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  return {};
}

}  // namespace weft
