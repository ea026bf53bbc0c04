// Cuts a template into text, tags and the tokens within tags, with the white space rules of Jinja as Hugging Face sets
// them: trim_blocks and lstrip_blocks on, a final newline dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::jinja {

struct Token {
  enum Kind { text, print_begin, print_end, block_begin, block_end, name, integer, real, string, symbol, end };
  Kind kind = end;
  std::string value;  // of a string: without quotes and escapes
  int line = 1;
};

// Throws Error(invalid_template) with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace weft::jinja
