// Checks that read as one line. check(...) throws weft::Error for a user's mistake;
// ensure(...) throws weft::InternalError for a broken invariant of ours.
//
//   check(page < num_pages, ErrorCode::invalid_page, "page_indices[{}] = {}; allowed are 0 to {}", i, page,
//         num_pages - 1);
//
// A message names the argument, its value and what is allowed, and says how to mend it.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "weft/error.h"

namespace weft {

template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
inline void check(bool ok, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(code, format, std::forward<Args>(args)...);
}

template <class... Args>
inline void ensure(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

// What a movable object owns: nothing once it was moved from, or where it was never made. `make` says how to make one.
template <class Owner>
inline auto& held(const Owner& owner, const char* name, const char* make) {
  check(owner != nullptr, ErrorCode::invalid_argument,
        "{}: is empty: it was moved from, or never made; make one with {}", name, make);
  return *owner;
}

}  // namespace weft
