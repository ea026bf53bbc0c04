// Byte-level BPE: a word's bytes become tokens, then the pair of neighbours with the best rank merges, the leftmost of
// equals first, until no pair is left (Sennrich et al. 2016; bytes as in GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer_vocabulary.h"

namespace weft {

// Thread-safe after construction. Keeps references to its arguments.
class BytePairEncoder {
 public:
  // Throws Error(invalid_file) for a merge of tokens that are not there.
  BytePairEncoder(const Vocabulary& vocabulary, const TokenIndex& index);

  // Appends the tokens of one word. whole: a word that is a token is taken as it is.
  // A byte that has no token becomes the unknown token before anything merges; where there is none, its neighbours
  // become each other's and may merge.
  void encode(std::string_view word, bool whole, std::vector<int32_t>& ids) const;
  bool leaves_bytes_out() const { return leaves_bytes_out_; }

 private:
  struct Merge {
    int32_t left = -1, right = -1, rank = 0, result = 0;
  };
  // A run of neighbours as a doubly linked list over indices.
  struct Symbol {
    int32_t id, previous, next;
  };

  void add_merge(const Merge& merge);
  const Merge* find(int32_t left, int32_t right) const;
  void merge_short(std::vector<int32_t>& ids, size_t begin) const;
  void merge_long(std::vector<int32_t>& ids, size_t begin) const;

  const Vocabulary& vocabulary_;
  const TokenIndex& index_;
  std::array<int32_t, 256> byte_tokens_;  // kNoToken: the byte is left out
  bool leaves_bytes_out_ = false;         // some byte is
  std::vector<Merge> merges_;             // open addressing, at most half full
  uint64_t mask_ = 0;
};

// The alphabet of byte-level tokens: every byte as a printable character.
std::string byte_level_text(std::string_view bytes);
// The way back; characters outside the alphabet stay as they are.
std::string byte_level_bytes(std::string_view text);

}  // namespace weft
