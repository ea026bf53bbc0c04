// Turns the bytes of tokens, which may end within a character, into whole UTF-8 characters.
#pragma once

#include <string>
#include <string_view>

namespace weft::decode {

class TextStream {
 public:
  // The characters that are complete now. Bytes that can no longer become a character turn into U+FFFD.
  std::string push(std::string_view bytes);
  // What is left at the end: nothing, or one U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

// The whole text at once.
std::string valid_utf8(std::string_view bytes);

}  // namespace weft::decode
