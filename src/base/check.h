// Checks that read as one line. check(...) throws weft::Error for a user's mistake;
// ensure(...) throws weft::InternalError for a broken invariant of ours.
//
//   check(page < num_pages, ErrorCode::invalid_page, "page_indices[{}] = {}; allowed are 0 to {}", i, page,
//         num_pages - 1);
//
// A message names the argument, its value and what is allowed, and says how to mend it.
#pragma once

#include <fmt/format.h>

#include "weft/error.h"

namespace weft {

// Out of line, so that a call leaves little behind where it stands: nothing to format and no string to free.
namespace failure {
[[noreturn, gnu::cold]] void throw_error(ErrorCode code, fmt::string_view format, fmt::format_args args);
[[noreturn, gnu::cold]] void throw_internal_error(fmt::string_view format, fmt::format_args args);
}  // namespace failure

template <class... Args>
[[noreturn]] inline void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  failure::throw_error(code, format, fmt::make_format_args(args...));
}

template <class... Args>
inline void check(bool ok, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    failure::throw_error(code, format, fmt::make_format_args(args...));
}

template <class... Args>
inline void ensure(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    failure::throw_internal_error(format, fmt::make_format_args(args...));
}

// What a movable object owns: nothing once it was moved from, or where it was never made. `make` says how to make one.
template <class Owner>
inline auto& held(const Owner& owner, const char* name, const char* make) {
  check(owner != nullptr, ErrorCode::invalid_argument,
        "{}: is empty: it was moved from, or never made; make one with {}", name, make);
  return *owner;
}

}  // namespace weft
