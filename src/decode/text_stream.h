// Turns the bytes of tokens, which may end within a character, into whole UTF-8 characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::decode {

class TextStream {
 public:
  // The characters that are complete now. Bytes that can no longer become a character turn into U+FFFD.
  std::string push(std::string_view bytes);
  // What is left at the end: nothing, or one U+FFFD.
  std::string finish();
  // Characters of the whole text before the one that the first of `bytes` is part of, if they are pushed next.
  int64_t offset_of(std::string_view bytes) const;

 private:
  std::string pending_;
  int64_t characters_ = 0;  // that were complete
};

// The whole text at once.
std::string valid_utf8(std::string_view bytes);
// Code points of valid UTF-8.
int64_t num_characters(std::string_view text);

}  // namespace weft::decode
