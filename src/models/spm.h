// SentencePiece-style BPE: a text's characters merge to the token with the best score, the leftmost of equals first;
// what is no token then becomes its bytes (Kudo and Richardson 2018, model type bpe with byte fallback).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer_vocabulary.h"

namespace weft {

// U+2581, which stands for a space within tokens.
inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// Thread-safe after construction. Keeps references to its arguments.
class SentencePieceEncoder {
 public:
  SentencePieceEncoder(const Vocabulary& vocabulary, const TokenIndex& index);

  // Appends the tokens of a piece of text; space_prefix puts one space in front of it.
  // A byte without a token becomes the unknown token; throws Error(invalid_token) where there is none.
  void encode(std::string_view text, bool space_prefix, std::vector<int32_t>& ids) const;

 private:
  int32_t find(std::string_view text) const;
  void append_bytes(std::string_view text, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary_;
  const TokenIndex& index_;
  std::array<int32_t, 256> byte_tokens_;
  size_t longest_ = 0;
};

}  // namespace weft
