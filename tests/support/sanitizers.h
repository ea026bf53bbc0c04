// Whether a sanitizer watches what is tested, about ten times slower: sizes of tests may follow it. The build says so,
// as the compiler tells only files that are watched themselves.
#pragma once

namespace weft::testing {

#if defined(WEFT_UNDER_SANITIZER)
inline constexpr bool kUnderSanitizer = true;
#else
inline constexpr bool kUnderSanitizer = false;
#endif

// Whether that is the one of threads, which sees nothing in work of a single one: it is left to the other builds.
#if defined(WEFT_UNDER_THREAD_SANITIZER)
inline constexpr bool kUnderThreadSanitizer = true;
#else
inline constexpr bool kUnderThreadSanitizer = false;
#endif

}  // namespace weft::testing
