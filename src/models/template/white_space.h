// White space as Python takes it, which Jinja's own rules rest on: Unicode's, and the four separators from U+001C on.
#pragma once

#include <cstddef>
#include <string_view>

#include "models/utf8.h"

namespace weft::jinja {

inline constexpr std::string_view kWhiteSpace =
    "\x1c\x1d\x1e\x1f \t\n\r\f\v\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005"
    "\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000";
// int() and float() take all but the four separators off their text.
inline constexpr std::string_view kSpaceAroundNumbers = kWhiteSpace.substr(4);

// Bytes of the white-space character that begins at text[at]; 0 where none does.
inline size_t space_at(std::string_view text, size_t at) {
  const size_t length = utf8::character_length(text, at);
  return length > 0 && kWhiteSpace.find(text.substr(at, length)) != std::string_view::npos ? length : 0;
}

// Bytes of white space from text[at] on.
inline size_t spaces_from(std::string_view text, size_t at) {
  const size_t begin = at;
  while (const size_t length = space_at(text, at)) at += length;
  return at - begin;
}

// Bytes of white space at the end of the text.
inline size_t spaces_at_end(std::string_view text) {
  size_t end = text.size();
  for (size_t length = 1; length <= 3 && length <= end;)  // no white space takes four
    if (space_at(text.substr(0, end), end - length) == length) {
      end -= length;
      length = 1;
    } else {
      ++length;
    }
  return text.size() - end;
}

}  // namespace weft::jinja
