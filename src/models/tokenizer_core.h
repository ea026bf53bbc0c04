// The tokenizer over a vocabulary, wherever that came from; weft::Tokenizer wraps it around a model file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/bpe.h"
#include "models/pretokenizer.h"
#include "models/spm.h"
#include "models/tokenizer_special.h"
#include "models/tokenizer_vocabulary.h"
#include "weft/model.h"

namespace weft {

// Thread-safe after construction; not movable, since its parts refer to each other.
class TokenizerCore {
 public:
  explicit TokenizerCore(Vocabulary vocabulary);
  TokenizerCore(const TokenizerCore&) = delete;
  TokenizerCore& operator=(const TokenizerCore&) = delete;

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const;
  int64_t least_tokens(size_t bytes) const;
  std::string as_plain_text(std::string_view text) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;
  std::string piece(int32_t id, bool skip_special) const;
  int32_t token(std::string_view text) const { return index_.find(text); }
  bool is_end(int32_t id) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  bool is_special(int32_t id) const;
  SpecialTokens::Match find_special(std::string_view text, size_t from, bool parse_special) const;

  Vocabulary vocabulary_;
  TokenIndex index_;
  SpecialTokens user_defined_, all_special_;
  std::vector<bool> ends_;
  size_t longest_ = 4;  // bytes of text that a token may stand for: an unknown one for a character
  // One pair of these is there: words and merges, or pieces.
  std::optional<Pretokenizer> pretokenizer_;
  std::optional<BytePairEncoder> byte_pairs_;
  std::optional<SentencePieceEncoder> pieces_;
};

}  // namespace weft
