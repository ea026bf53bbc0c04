// What a model file says about its tokenizer, checked, and the table from a token's text to its id.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class ModelFile;

// The numbers are those of tokenizer.ggml.token_type.
enum class TokenType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

// The texts of all tokens in one piece of memory.
class TokenTexts {
 public:
  TokenTexts() = default;
  explicit TokenTexts(const std::vector<std::string>& texts);
  int32_t size() const { return static_cast<int32_t>(ends_.size()); }
  std::string_view operator[](int32_t id) const {
    const uint32_t begin = id == 0 ? 0 : ends_[static_cast<size_t>(id) - 1];
    return {blob_.data() + begin, ends_[static_cast<size_t>(id)] - begin};
  }

 private:
  std::string blob_;
  std::vector<uint32_t> ends_;
};

struct Vocabulary {
  std::string model;  // "gpt2" or "llama"
  std::string pre;    // pre-tokenizer of a gpt2 model
  TokenTexts texts;
  std::vector<TokenType> types;     // one a token
  std::vector<float> scores;        // one a token for llama, else empty
  std::vector<std::string> merges;  // "left right", best first; gpt2 only
  int32_t bos = -1, eos = -1, unknown = -1;
  std::vector<int32_t> ends;  // tokens besides eos that end a generation
  bool add_bos = false, add_eos = false, add_space_prefix = false;

  int32_t size() const { return texts.size(); }
  TokenType type(int32_t id) const { return types[static_cast<size_t>(id)]; }
};

// "<0x41>" -> 0x41, SentencePiece's text for a byte; -1 for any other text.
int byte_of_token(std::string_view text);

// Reads the keys tokenizer.ggml.*. Throws Error(invalid_file | unsupported).
Vocabulary read_vocabulary(const ModelFile& file);
// Throws Error(invalid_file) where the parts do not fit together.
void check_vocabulary(const Vocabulary& vocabulary);

// Text to id: open addressing, at most half full. Of equal texts the least id is found.
class TokenIndex {
 public:
  explicit TokenIndex(const TokenTexts& texts);
  int32_t find(std::string_view text) const { return find(text, hash(text)); }  // -1: none

  // For many look-ups: hash them all, prefetch, then find, so that the misses overlap.
  static uint64_t hash(std::string_view text);
  void prefetch(uint64_t text_hash) const { __builtin_prefetch(&slots_[text_hash & mask_]); }
  int32_t find(std::string_view text, uint64_t text_hash) const;

 private:
  // The upper half of the hash tells most other texts apart without reading them.
  struct Slot {
    int32_t id = -1;
    uint32_t tag = 0;
  };
  const TokenTexts& texts_;
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace weft
