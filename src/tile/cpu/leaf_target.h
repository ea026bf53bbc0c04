// What a leaf on a CPU brings to the language of variants (tile/variant/language.h).
// Part of the generated text, so it includes nothing.
#pragma once

#define WEFT_INLINE inline __attribute__((always_inline))

namespace weft {

using real = float;

namespace detail {

// Scores are computed in runs of at most 32 neighbouring keys, which take their bits from one word.
struct KeyRun {
  int first;
};
typedef unsigned Word __attribute__((aligned(1), may_alias));
// Bit row_start + key; 4 bytes follow the one that it lies in.
WEFT_INLINE bool bit_of(const unsigned char* bytes, long long row_start, int key, KeyRun run) {
  const long long first = row_start + run.first;
  bytes += first >> 3;
  const unsigned low = *reinterpret_cast<const Word*>(bytes);
  const unsigned long long wide = (static_cast<unsigned long long>(bytes[4]) << 32) | low;
  const unsigned word = static_cast<unsigned>(wide >> (first & 7));
  // The bit as a sign: compilers vectorise this comparison, and not the conversion of one bit to bool.
  return static_cast<int>(word << (31 - (key - run.first))) < 0;
}

}  // namespace detail
}  // namespace weft
