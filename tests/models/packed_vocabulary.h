// The vocabularies under tests/data/tokenizers, as tools/make_tokenizer_vectors.py packed them.
#pragma once

#include <string>
#include <vector>

#include "models/tokenizer_vocabulary.h"

namespace weft::test {

// The parts of a vocabulary as a model file lists them, from which a test may also write such a file.
struct VocabularyParts {
  std::string model, pre;
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  int32_t bos = -1, eos = -1, unknown = -1;
  bool add_bos = false, add_space_prefix = false;
};

VocabularyParts read_packed_vocabulary(const std::string& name);  // "gpt-2", "smollm", "qwen2"
VocabularyParts read_tok512();                                    // SentencePiece, 512 tokens
Vocabulary make_vocabulary(const VocabularyParts& parts);

struct TokenizerVector {
  std::string tokenizer, text;
  std::vector<int32_t> ids;
};
std::vector<TokenizerVector> read_vectors(const std::string& tokenizer);

}  // namespace weft::test
