// What the fp64 reference brings to the language of variants (tile/variant/language.h): a score at a time. The text
// defines weft::real before it: double, or float to see what that rounds.
// Part of the generated text, so it includes nothing.
#pragma once

#define WEFT_INLINE inline

namespace weft::detail {

struct KeyRun {};
// Bit row_start + key.
inline bool bit_of(const unsigned char* bytes, long long row_start, int key, KeyRun) {
  const long long bit = row_start + key;
  return ((bytes[bit >> 3] >> (bit & 7)) & 1) != 0;
}

}  // namespace weft::detail
