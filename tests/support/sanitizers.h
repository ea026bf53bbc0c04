// Whether a sanitizer watches what is tested, about ten times slower: sizes of tests may follow it. The build says so,
// as the compiler tells only files that are watched themselves.
#pragma once

namespace weft::testing {

#if defined(WEFT_UNDER_SANITIZER)
inline constexpr bool kUnderSanitizer = true;
#else
inline constexpr bool kUnderSanitizer = false;
#endif

}  // namespace weft::testing
