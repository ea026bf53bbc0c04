#include "models/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <initializer_list>
#include <span>

#include "base/check.h"
#include "models/utf8.h"

namespace weft {
namespace {

// White space is spelled out: PCRE2's own \s counts U+180E, which Unicode and the models' tokenizers do not.
#define WEFT_SPACES R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define WEFT_SPACE "[" WEFT_SPACES "]"
#define WEFT_SYMBOL "[^" WEFT_SPACES R"(\p{L}\p{N}])"

constexpr const char* kGpt2 = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?)" WEFT_SYMBOL "+|" WEFT_SPACE
                              "+(?![^" WEFT_SPACES "])|" WEFT_SPACE "+";
// Digits are words of their own; the rest is as gpt-2 would cut the text between them, so that white space in front of
// a digit stays whole.
constexpr const char* kSingleDigits = R"(\p{N}|'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?)" WEFT_SYMBOL "+|" WEFT_SPACE
                                      "+(?![^" WEFT_SPACES R"(\p{N}])|)" WEFT_SPACE "+";
#define WEFT_CL100K(numbers)                                                                                      \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" numbers "| ?" WEFT_SYMBOL R"(+[\r\n]*|)" WEFT_SPACE \
  R"(*[\r\n]+|)" WEFT_SPACE "+(?![^" WEFT_SPACES "])|" WEFT_SPACE "+"
constexpr const char* kLlama3 = WEFT_CL100K(R"(\p{N}{1,3})");
constexpr const char* kQwen2 = WEFT_CL100K(R"(\p{N})");
// Files made before the key tokenizer.ggml.pre existed.
constexpr const char* kDefaultPunctuation = R"([\p{P}$+<=>^~|]+)";
constexpr const char* kDefaultNumbers = R"(\p{N}+)";
constexpr const char* kDefaultThrees = R"([0-9][0-9][0-9])";

struct Description {
  std::initializer_list<std::string_view> names;  // the first is the one that errors list
  std::initializer_list<const char*> patterns;    // each cuts what the one before left
  bool takes_whole_words = false;
  bool adds_bos = false;
};
// Names whose pattern is the same, as converters and llama.cpp group them (its src/llama-vocab.cpp).
const Description kDescriptions[] = {
    {{"smollm", "smollm2", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
     {kSingleDigits}},
    {{"gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum",
      "exaone4", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"},
     {kGpt2}},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
     {kLlama3},
     true,
     true},
    {{"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {kLlama3}},
    {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2", "kormo", "f2llmv2"},
     {kQwen2}},
    {{"default"}, {kDefaultPunctuation, kGpt2, kDefaultNumbers, kDefaultThrees}},
};

const Description* find_description(std::string_view name) {
  for (const Description& description : kDescriptions)
    for (const std::string_view known : description.names)
      if (known == name) return &description;
  return nullptr;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// Work that one match may do, far above what these patterns need: it grows with a word, not with the text.
constexpr uint32_t kMatchLimit = 1u << 28;

}  // namespace

struct Pretokenizer::Pattern {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeContext> context;

  explicit Pattern(const char* text) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, nullptr));
    ensure(code != nullptr, "pre-tokenizer pattern does not compile: error {} at {} of {}", error, offset, text);
    // Where the system forbids generated code, the interpreter takes over.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    context.reset(pcre2_match_context_create(nullptr));
    check(context != nullptr, ErrorCode::out_of_memory, "no memory for a pre-tokenizer");
    pcre2_set_match_limit(context.get(), kMatchLimit);
  }
};

Pretokenizer::Pretokenizer(std::string_view name) {
  const Description* description = find_description(name);
  if (description == nullptr) {
    std::string known;
    for (const Description& other : kDescriptions)
      known += (known.empty() ? "" : ", ") + std::string(*other.names.begin());
    fail(ErrorCode::unsupported,
         "tokenizer.ggml.pre = '{}': required is that pre-tokenizer, supported are {}; missing is '{}'", name, known,
         name);
  }
  for (const char* pattern : description->patterns) patterns_.emplace_back(pattern);
  takes_whole_words_ = description->takes_whole_words;
}

Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;

void Pretokenizer::split_by(size_t index, std::string_view text, std::vector<std::string_view>& words,
                            size_t at_most) const {
  if (text.empty() || words.size() > at_most) return;
  if (index == patterns_.size()) {
    words.push_back(text);
    return;
  }
  const Pattern& pattern = patterns_[index];
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  check(match != nullptr, ErrorCode::out_of_memory, "no memory to match a pre-tokenizer's pattern");
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  size_t done = 0;
  while (done < text.size() && words.size() <= at_most) {
    const int found = pcre2_match(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                                  PCRE2_NO_UTF_CHECK, match.get(), pattern.context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    check(found >= 0, found == PCRE2_ERROR_NOMEMORY ? ErrorCode::out_of_memory : ErrorCode::invalid_argument,
          "text: the pre-tokenizer gave up at byte {} (PCRE2 error {}); break up the longest run of equal characters",
          done, found);
    split_by(index + 1, text.substr(done, range[0] - done), words, at_most);
    split_by(index + 1, text.substr(range[0], range[1] - range[0]), words, at_most);
    done = range[1];
  }
  split_by(index + 1, text.substr(done), words, at_most);
}

void Pretokenizer::split(std::string_view text, std::vector<std::string_view>& words, size_t at_most) const {
  // The patterns see valid UTF-8 only: the text is cut at bytes that are not.
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    if (const size_t length = utf8::character_length(text, at); length != 0) {
      at += length;
      continue;
    }
    split_by(0, text.substr(begin, at - begin), words, at_most);
    if (words.size() > at_most) return;
    begin = at;
    while (at < text.size() && utf8::character_length(text, at) == 0) ++at;
    words.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  split_by(0, text.substr(begin), words, at_most);
}

bool pretokenizer_adds_bos(std::string_view name) {
  const Description* description = find_description(name);
  return description != nullptr && description->adds_bos;
}

}  // namespace weft
