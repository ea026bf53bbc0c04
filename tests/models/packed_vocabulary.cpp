#include "tests/models/packed_vocabulary.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "models/bpe.h"

namespace weft::test {
namespace {

std::string read_data(const std::string& name) {
  std::ifstream file(std::string(WEFT_TEST_DATA "/tokenizers/") + name, std::ios::binary);
  if (!file) throw std::runtime_error("missing test data: " + name);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

VocabularyParts read_packed_vocabulary(const std::string& name) {
  const std::string data = read_data(name + ".bpe");
  const size_t line = data.find('\n');
  const auto header = nlohmann::json::parse(data.substr(0, line));
  VocabularyParts parts;
  parts.model = "gpt2";
  parts.pre = header.at("pre");
  parts.bos = header.at("bos");
  parts.eos = header.at("eos");
  parts.tokens.resize(header.at("tokens"));
  parts.types.assign(parts.tokens.size(), 1);
  for (const auto& special : header.at("special")) {
    parts.tokens.at(special.at(0)) = special.at(1);
    parts.types.at(special.at(0)) = special.at(2);
  }
  std::vector<std::string> alphabet;
  const std::vector<int> missing = header.at("missing_bytes");
  for (int byte = 0; byte < 256; ++byte)
    if (std::find(missing.begin(), missing.end(), byte) == missing.end())
      alphabet.push_back(byte_level_text(std::string(1, static_cast<char>(byte))));
  std::sort(alphabet.begin(), alphabet.end());  // UTF-8 sorts as its code points
  std::copy(alphabet.begin(), alphabet.end(), parts.tokens.begin() + header.at("first_byte").get<int>());

  const size_t width = header.at("width");
  const char* at = data.data() + line + 1;
  const auto next_id = [&] {
    uint32_t id = 0;
    std::memcpy(&id, at, width);
    at += width;
    return id;
  };
  size_t result = header.at("first_merge");
  for (int merge = 0; merge < header.at("merges").get<int>(); ++merge) {
    const std::string &left = parts.tokens.at(next_id()), &right = parts.tokens.at(next_id());
    parts.merges.push_back(left + " " + right);
    parts.tokens.at(result++) = left + right;
  }
  return parts;
}

VocabularyParts read_tok512() {
  const std::string data = read_data("tok512.bin");
  VocabularyParts parts;
  parts.model = "llama";
  parts.bos = 1, parts.eos = 2, parts.unknown = 0;
  parts.add_bos = parts.add_space_prefix = true;
  for (size_t at = 4; at < data.size();) {
    float score;
    int32_t length;
    std::memcpy(&score, data.data() + at, 4);
    std::memcpy(&length, data.data() + at + 4, 4);
    std::string text;
    for (const char c : data.substr(at + 8, static_cast<size_t>(length)))
      text += c == ' ' ? "\u2581" : std::string(1, c);
    at += 8 + static_cast<size_t>(length);
    const size_t id = parts.tokens.size();
    constexpr const char* kFirst[] = {"<unk>", "<s>", "</s>"};
    parts.tokens.push_back(id < 3 ? kFirst[id] : text);
    parts.types.push_back(id == 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
    parts.scores.push_back(score);
  }
  return parts;
}

Vocabulary make_vocabulary(const VocabularyParts& parts) {
  Vocabulary vocabulary;
  vocabulary.model = parts.model;
  vocabulary.pre = parts.pre;
  vocabulary.texts = TokenTexts(parts.tokens);
  for (const int32_t type : parts.types) vocabulary.types.push_back(static_cast<TokenType>(type));
  vocabulary.scores = parts.scores;
  vocabulary.merges = parts.merges;
  vocabulary.bos = parts.bos;
  vocabulary.eos = parts.eos;
  vocabulary.unknown = parts.unknown;
  vocabulary.add_bos = parts.add_bos;
  vocabulary.add_space_prefix = parts.add_space_prefix;
  check_vocabulary(vocabulary);
  return vocabulary;
}

std::vector<TokenizerVector> read_vectors(const std::string& tokenizer) {
  std::ifstream file(WEFT_TEST_DATA "/tokenizers/vectors.jsonl");
  std::vector<TokenizerVector> vectors;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.at("tokenizer") == tokenizer) vectors.push_back({tokenizer, row.at("text"), row.at("ids")});
  }
  if (vectors.empty()) throw std::runtime_error("no vectors for " + tokenizer);
  return vectors;
}

}  // namespace weft::test
