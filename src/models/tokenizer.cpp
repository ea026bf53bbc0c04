#include "base/check.h"
#include "models/config.h"
#include "models/pretokenizer.h"
#include "models/tokenizer_core.h"
#include "models/turn_tokens.h"
#include "weft/model.h"

namespace weft {
namespace {

int32_t read_id(const ModelFile& file, std::string_view key, int32_t count) {
  if (!file.has(key)) return -1;
  const int64_t id = file.get_int(key);
  // Some writers store "none" as the largest unsigned number.
  if (id == -1 || id == 0xffffffffll) return -1;
  check(id >= 0 && id < count, ErrorCode::invalid_file, "{} = {}; allowed are 0 to {}", key, id, count - 1);
  return static_cast<int32_t>(id);
}

bool read_flag(const ModelFile& file, std::string_view key, bool otherwise) {
  return file.has(key) ? file.get_bool(key) : otherwise;
}

// Of a file without types: what the ids and, in SentencePiece's vocabularies, the texts say.
void guess_types(Vocabulary& vocabulary) {
  const auto set = [&](int32_t id, TokenType type) {
    if (id >= 0) vocabulary.types[static_cast<size_t>(id)] = type;
  };
  for (int32_t id = 0; vocabulary.model == "llama" && id < vocabulary.size(); ++id)
    if (byte_of_token(vocabulary.texts[id]) >= 0) set(id, TokenType::byte);
  for (const int32_t id : vocabulary.ends) set(id, TokenType::control);
  set(vocabulary.bos, TokenType::control);
  set(vocabulary.eos, TokenType::control);
  set(vocabulary.unknown, TokenType::unknown);
}

void read_types(const ModelFile& file, Vocabulary& vocabulary) {
  vocabulary.types.assign(static_cast<size_t>(vocabulary.size()), TokenType::normal);
  if (!file.has("tokenizer.ggml.token_type")) return guess_types(vocabulary);
  const std::vector<int32_t> types = file.get_ints("tokenizer.ggml.token_type");
  check(types.size() == vocabulary.types.size(), ErrorCode::invalid_file,
        "tokenizer.ggml.token_type has {} entries for {} tokens", types.size(), vocabulary.size());
  for (size_t i = 0; i < types.size(); ++i) {
    check(types[i] >= 1 && types[i] <= 6, ErrorCode::invalid_file,
          "tokenizer.ggml.token_type[{}] = {}; allowed are 1 to 6", i, types[i]);
    vocabulary.types[i] = static_cast<TokenType>(types[i]);
  }
}

}  // namespace

Vocabulary read_vocabulary(const ModelFile& file) {
  refuse_other_contents(file);
  Vocabulary vocabulary;
  vocabulary.model = file.get_string("tokenizer.ggml.model");
  const bool byte_level = vocabulary.model == "gpt2";
  check(byte_level || vocabulary.model == "llama", ErrorCode::unsupported,
        "tokenizer.ggml.model = '{}': required is a tokenizer of that kind, supported are gpt2 (byte-level BPE) and "
        "llama "
        "(SentencePiece); missing is '{}'",
        vocabulary.model, vocabulary.model);

  vocabulary.texts = TokenTexts(file.get_strings("tokenizer.ggml.tokens"));
  const int32_t count = vocabulary.size();
  if (byte_level) {
    vocabulary.merges = file.get_strings("tokenizer.ggml.merges");
    vocabulary.pre = file.has("tokenizer.ggml.pre") ? file.get_string("tokenizer.ggml.pre") : "default";
  } else {
    vocabulary.scores = file.get_floats("tokenizer.ggml.scores");
    check(!read_flag(file, "tokenizer.ggml.remove_extra_whitespaces", false), ErrorCode::unsupported,
          "tokenizer.ggml.remove_extra_whitespaces = true: required is a normaliser that removes white space, "
          "supported are "
          "tokenizers that keep it; missing is that normaliser");
  }

  vocabulary.bos = read_id(file, "tokenizer.ggml.bos_token_id", count);
  vocabulary.eos = read_id(file, "tokenizer.ggml.eos_token_id", count);
  vocabulary.unknown = read_id(file, "tokenizer.ggml.unknown_token_id", count);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const int32_t id = read_id(file, key, count); id >= 0) vocabulary.ends.push_back(id);
  read_types(file, vocabulary);
  mark_turn_tokens(vocabulary);

  vocabulary.add_bos =
      read_flag(file, "tokenizer.ggml.add_bos_token", !byte_level || pretokenizer_adds_bos(vocabulary.pre));
  vocabulary.add_eos = read_flag(file, "tokenizer.ggml.add_eos_token", false);
  vocabulary.add_space_prefix = !byte_level && read_flag(file, "tokenizer.ggml.add_space_prefix", true);
  // A default asks for nothing that the file does not have.
  if (!file.has("tokenizer.ggml.add_bos_token") && vocabulary.bos < 0) vocabulary.add_bos = false;
  check_vocabulary(vocabulary);
  return vocabulary;
}

struct Tokenizer::Impl {
  TokenizerCore core;
};

Tokenizer::Tokenizer(const ModelFile& file) : impl_(new Impl{TokenizerCore(read_vocabulary(file))}) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer::Impl& Tokenizer::impl() const { return held(impl_, "tokenizer", "Tokenizer(file)"); }

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  return impl().core.encode(text, options);
}
int64_t Tokenizer::least_tokens(size_t bytes) const { return impl().core.least_tokens(bytes); }
std::string Tokenizer::as_plain_text(std::string_view text) const { return impl().core.as_plain_text(text); }
std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return impl().core.decode(ids, skip_special);
}
std::string Tokenizer::piece(int32_t id, bool skip_special) const { return impl().core.piece(id, skip_special); }
int32_t Tokenizer::token(std::string_view text) const { return impl().core.token(text); }
int Tokenizer::vocab_size() const { return impl().core.vocabulary().size(); }
int32_t Tokenizer::bos() const { return impl().core.vocabulary().bos; }
int32_t Tokenizer::eos() const { return impl().core.vocabulary().eos; }
bool Tokenizer::is_end(int32_t id) const { return impl().core.is_end(id); }
bool Tokenizer::adds_bos() const { return impl().core.vocabulary().add_bos; }

}  // namespace weft
