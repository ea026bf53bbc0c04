// Log lines go to a sink that the program sets; the library itself prints nothing until then.
// The CLI's sink writes to stderr. Levels: 0 error, 1 warn, 2 info, 3 debug (WEFT_LOG).
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace weft::log {

using Sink = void (*)(int level, std::string_view line);
void set_sink(Sink sink);
bool enabled(int level);
void write(int level, std::string_view line);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(1)) write(1, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(2)) write(2, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(3)) write(3, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace weft::log
