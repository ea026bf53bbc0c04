// The C++ tokens of a variant's text, as a compiler sees them once it has spliced lines and dropped comments.
//
//   for (const Token& token : tokens(variant.text))
//     if (token.is("asm")) ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct Token {
  enum class Kind : uint8_t { word, number, literal, punctuation };
  Kind kind = Kind::word;
  bool begins_directive = false;  // the # of a preprocessor line
  bool in_directive = false;      // of a preprocessor line, its # included
  int line = 1;
  // Spliced. `->`, `::` and `##` are one token, all other punctuation is single characters; digraphs are what they
  // stand for. Empty for literals of characters and strings.
  std::string text = {};
  bool is(std::string_view other) const { return text == other; }
  bool is_word() const { return kind == Kind::word; }
};

// What stands behind `#if 0` is left out, as comments are, but for directives; of every other condition both branches
// are there.
std::vector<Token> tokens(std::string_view text);

// True when the text has this word outside of comments and literals.
bool mentions(std::string_view text, std::string_view word);

}  // namespace weft
