// Characters as texts of programs and templates have them: ASCII, whatever the locale.
#pragma once

namespace weft {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace weft
