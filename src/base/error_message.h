// What an error says, for one that says more.
#pragma once

#include <string>

#include "weft/error.h"

namespace weft {

// Without the code's name, which what() begins with.
inline std::string message_of(const Error& error) {
  const std::string_view what = error.what();
  return std::string(what.substr(to_string(error.code()).size() + 2));
}

}  // namespace weft
