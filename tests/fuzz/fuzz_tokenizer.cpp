// Text of any bytes through small tokenizers of every kind: encoding and decoding end, and byte-level ids give the
// text back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/bpe.h"
#include "models/tokenizer_core.h"
#include "weft/error.h"

namespace {

using weft::TokenizerCore;
using weft::TokenType;
using weft::Vocabulary;

std::unique_ptr<TokenizerCore> byte_level(std::string pre) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(weft::byte_level_text(std::string(1, static_cast<char>(byte))));
  Vocabulary vocabulary;
  for (const char* pair :
       {"a a", "a b", "aa a", "aa aa", "t h", "th e", "\u0120 a", "\u0120 \u0120", "1 2", "\u00e2 \u0102"}) {
    const std::string merge = pair;
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    // A merge of what is no token would be refused; the list holds results before what needs them.
    tokens.push_back(joined);
    vocabulary.merges.push_back(merge);
  }
  tokens.insert(tokens.end(), {"<|end|>", "<x", "<x>", "<x>y"});
  vocabulary.model = "gpt2";
  vocabulary.pre = std::move(pre);
  vocabulary.texts = weft::TokenTexts(tokens);
  vocabulary.types.assign(tokens.size(), TokenType::normal);
  vocabulary.types[tokens.size() - 4] = TokenType::control;
  for (size_t i = tokens.size() - 3; i < tokens.size(); ++i) vocabulary.types[i] = TokenType::user_defined;
  weft::check_vocabulary(vocabulary);
  return std::make_unique<TokenizerCore>(std::move(vocabulary));
}

std::unique_ptr<TokenizerCore> pieces() {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  Vocabulary vocabulary;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {TokenType::unknown, TokenType::control, TokenType::control};
  for (size_t byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    vocabulary.types.push_back(TokenType::byte);
  }
  for (const char* text : {"\u2581", "a", "b", "\u2581a", "ab", "aa", "aaaa", "\u2581\u2581", "\u00e9", "<x>"}) {
    tokens.emplace_back(text);
    vocabulary.types.push_back(TokenType::normal);
  }
  vocabulary.types.back() = TokenType::user_defined;
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary.scores.push_back(-static_cast<float>(i));
  vocabulary.model = "llama";
  vocabulary.texts = weft::TokenTexts(tokens);
  vocabulary.unknown = 0, vocabulary.bos = 1, vocabulary.eos = 2;
  vocabulary.add_bos = vocabulary.add_space_prefix = true;
  weft::check_vocabulary(vocabulary);
  return std::make_unique<TokenizerCore>(std::move(vocabulary));
}

void expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<TokenizerCore>> byte_tokenizers = [] {
    std::vector<std::unique_ptr<TokenizerCore>> all;
    for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2", "default"}) all.push_back(byte_level(pre));
    return all;
  }();
  static const std::unique_ptr<TokenizerCore> piece_tokenizer = pieces();

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool special : {false, true}) {
    // Where control tokens are found, the mark of those that are plain text is taken out (as_plain_text).
    const bool has_mark = special && text.find("\xef\xb7\x90") != std::string_view::npos;
    for (const auto& tokenizer : byte_tokenizers) {
      const std::vector<int32_t> ids = tokenizer->encode(text, {.add_special = true, .parse_special = special});
      expect(has_mark || tokenizer->decode(ids, false) == text);
      const std::string plain = tokenizer->as_plain_text(text);
      const std::vector<int32_t> of_plain = tokenizer->encode(plain, {.add_special = false, .parse_special = true});
      expect(tokenizer->decode(of_plain, true) == tokenizer->decode(of_plain, false));  // no control token
    }
    const std::vector<int32_t> ids = piece_tokenizer->encode(text, {.add_special = false, .parse_special = special});
    const std::string decoded = piece_tokenizer->decode(ids, false);
    // The mark of a space in the text comes back as the space that it stands for.
    if (!special && text.find("\xe2\x96\x81") == std::string_view::npos) expect(decoded == text);
  }
  return 0;
}
