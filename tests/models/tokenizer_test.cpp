#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "models/pretokenizer.h"
#include "models/tokenizer_core.h"
#include "models/utf8.h"
#include "tests/models/packed_vocabulary.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft {
namespace {

using test::make_vocabulary;
using test::VocabularyParts;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kSpecial{.add_special = false, .parse_special = true};

std::unique_ptr<TokenizerCore> make_packed(const std::string& name) {
  return std::make_unique<TokenizerCore>(make_vocabulary(test::read_packed_vocabulary(name)));
}
std::unique_ptr<TokenizerCore> make_tok512() {
  return std::make_unique<TokenizerCore>(make_vocabulary(test::read_tok512()));
}

// A byte-level tokenizer of the 256 bytes and whatever else a test adds.
VocabularyParts byte_parts(std::vector<std::pair<std::string, int>> more = {}, std::vector<std::string> merges = {}) {
  VocabularyParts parts;
  parts.model = "gpt2";
  parts.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    parts.tokens.push_back(byte_level_text(std::string(1, static_cast<char>(byte))));
    parts.types.push_back(1);
  }
  for (auto& [text, type] : more) {
    parts.tokens.push_back(text);
    parts.types.push_back(type);
  }
  parts.merges = std::move(merges);
  return parts;
}

template <class Work>
ErrorCode code_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.code();
  }
  throw std::runtime_error("nothing was thrown");
}

void expect_vectors(const TokenizerCore& tokenizer, const std::string& name, bool round_trip) {
  int count = 0;
  for (const auto& vector : test::read_vectors(name)) {
    const std::vector<int32_t> ids = tokenizer.encode(vector.text, kSpecial);
    EXPECT_EQ(ids, vector.ids) << name << ": " << nlohmann::json(vector.text).dump();
    if (round_trip) {
      EXPECT_EQ(tokenizer.decode(ids, false), vector.text) << name;
    }
    ++count;
  }
  EXPECT_GE(count, 130);
}

TEST(Tokenizer, GivesTheIdsOfGpt2) { expect_vectors(*make_packed("gpt-2"), "gpt-2", true); }
TEST(Tokenizer, GivesTheIdsOfQwen2) { expect_vectors(*make_packed("qwen2"), "qwen2", true); }
// SmolLM2 has no tokens for some bytes, so a text with them does not come back whole.
TEST(Tokenizer, GivesTheIdsOfSmollm) { expect_vectors(*make_packed("smollm"), "smollm", false); }
TEST(Tokenizer, GivesTheIdsOfSentencePiece) { expect_vectors(*make_tok512(), "spm", true); }
TEST(Tokenizer, GivesTheIdsOfTheLlama3PatternWithWholeWords) {
  VocabularyParts parts = test::read_packed_vocabulary("qwen2");
  parts.pre = "llama-bpe";
  expect_vectors(TokenizerCore(make_vocabulary(parts)), "llama-bpe", true);
}

TEST(Tokenizer, MatchesControlTokensOnlyOnRequest) {
  const TokenizerCore tokenizer(make_vocabulary(byte_parts({{"<|end|>", 3}, {"<tool>", 4}})));
  EXPECT_EQ(tokenizer.encode("a<|end|>", kSpecial), (std::vector<int32_t>{'a', 256}));
  EXPECT_EQ(tokenizer.encode("a<|end|>", kPlain).size(), 8u);
  EXPECT_EQ(tokenizer.encode("a<tool>", kPlain), (std::vector<int32_t>{'a', 257}));
}

// Marks are gone from the tokens, those that a text brings along, too.
TEST(Tokenizer, TakesPlainTextAsTextInsideOfTextWithControlTokens) {
  const TokenizerCore tokenizer(
      make_vocabulary(byte_parts({{"<|end|>", 3}, {"<tool>", 4}, {"|", 3}, {"<|e", 3}, {"<|end|>x", 3}})));
  for (const std::string text : {"a<|end|>b", "<|end|>x", "<|<|end|>|", "<|e<|end|", "\uFDD0<|end|>", "no", ""}) {
    std::string own = text;
    if (own.starts_with("\uFDD0")) own.erase(0, 3);
    std::vector<int32_t> expected = tokenizer.encode(own, kPlain);
    expected.insert(expected.begin(), 256);
    expected.push_back(256);
    EXPECT_EQ(tokenizer.encode("<|end|>" + tokenizer.as_plain_text(text) + "<|end|>", kSpecial), expected) << text;
  }
  EXPECT_EQ(tokenizer.encode(tokenizer.as_plain_text("<tool>"), kSpecial), (std::vector<int32_t>{257}))
      << "user-defined tokens are text";
  EXPECT_EQ(tokenizer.as_plain_text("a<tool>"), "a<tool>") << "and need no mark";
  EXPECT_EQ(tokenizer.encode("\uFDD0<tool>", kSpecial), (std::vector<int32_t>{257})) << "a mark makes no other of them";
}

// What stands before a marked token is looked at once, not once for each of its bytes.
TEST(Tokenizer, FindsAMarkedTokenFarAwayWithoutQuadraticWork) {
  const TokenizerCore tokenizer(make_vocabulary(byte_parts({{"<|end|>", 3}})));
  std::string text;
  while (text.size() < (testing::kUnderSanitizer ? 200'000u : 1'000'000u)) text += "x ";
  EXPECT_EQ(tokenizer.encode(text + tokenizer.as_plain_text("<|end|>"), kSpecial).size(), text.size() + 7);
}

TEST(Tokenizer, TakesTheLongestOfTheTokensThatBeginAtTheSamePlace) {
  const TokenizerCore tokenizer(make_vocabulary(byte_parts({{"<x", 4}, {"<x>", 4}, {"<x>y", 4}, {"<xz", 4}})));
  EXPECT_EQ(tokenizer.encode("<x>y<x><x<xz<", kPlain), (std::vector<int32_t>{258, 257, 256, 259, '<'}));
}

TEST(Tokenizer, MergesByRankAndThenFromTheLeft) {
  const auto parts = byte_parts({{"aa", 1}, {"ab", 1}, {"aaa", 1}}, {"a a", "a b", "aa a"});
  const TokenizerCore tokenizer(make_vocabulary(parts));
  EXPECT_EQ(tokenizer.encode("aaab", kPlain), (std::vector<int32_t>{256, 257}));
  EXPECT_EQ(tokenizer.encode("aaa", kPlain), (std::vector<int32_t>{258}));
}

// As tokenizers 0.23.3 does it.
TEST(Tokenizer, GivesAPairThatIsListedTwiceItsLastRank) {
  const TokenizerCore tokenizer(make_vocabulary(byte_parts({{"ab", 1}, {"bc", 1}}, {"a b", "b c", "a b"})));
  EXPECT_EQ(tokenizer.encode("abc", kPlain), (std::vector<int32_t>{'a', 257}));
  EXPECT_EQ(tokenizer.encode("ab", kPlain), (std::vector<int32_t>{256}));
}

TEST(Tokenizer, TakesAWordThatIsATokenWholeForLlama3Alone) {
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2", "default"}) {
    auto parts = byte_parts({{"abc", 1}, {"abd", 3}});
    parts.pre = pre;
    const TokenizerCore tokenizer(make_vocabulary(parts));
    const std::vector<int32_t> whole{256}, bytes{'a', 'b', 'c'}, control{'a', 'b', 'd'};
    EXPECT_EQ(tokenizer.encode("abc", kPlain), parts.pre == "llama-bpe" ? whole : bytes) << pre;
    EXPECT_EQ(tokenizer.encode("abd", kPlain), control) << pre;
  }
}

TEST(Tokenizer, FindsSpecialTokensWithinTheTextAlone) {
  const TokenizerCore tokenizer(make_vocabulary(byte_parts({{"", 4}, {"<x>", 4}, {"<x>", 4}})));
  EXPECT_EQ(tokenizer.encode("<x>", kPlain), (std::vector<int32_t>{257})) << "the first of equal texts";
  const std::string_view longer = "<x>";
  EXPECT_EQ(tokenizer.encode(longer.substr(0, 2), kPlain), (std::vector<int32_t>{'<', 'x'})) << "\">\" lies behind it";
}

TEST(Tokenizer, PutsBosAndEosAroundATextOnRequest) {
  auto parts = byte_parts({{"<s>", 3}, {"</s>", 3}});
  parts.bos = 256, parts.eos = 257;
  Vocabulary vocabulary = make_vocabulary(parts);
  vocabulary.add_bos = vocabulary.add_eos = true;
  const TokenizerCore tokenizer(std::move(vocabulary));
  EXPECT_EQ(tokenizer.encode("a", {}), (std::vector<int32_t>{256, 'a', 257}));
  EXPECT_EQ(tokenizer.encode("a", kPlain), (std::vector<int32_t>{'a'}));
}

// Words beyond 48 bytes take the heap instead of the scan; a text of merges that overlap must not show it.
TEST(Tokenizer, MergesLongWordsAsItMergesShortOnes) {
  const auto tokenizer = make_packed("gpt-2");
  EXPECT_TRUE(rc::check("a word of n letters, one merge at a time", [&](uint32_t seed) {
    std::mt19937 random(seed);
    std::string word;
    const size_t length = 49 + random() % 80;
    for (size_t i = 0; i < length; ++i) word += "etaoinshr"[random() % 9];
    // The reference: merge the best pair everywhere, from the definition.
    const auto parts_ids = [&] {
      static const VocabularyParts parts = test::read_packed_vocabulary("gpt-2");
      static const std::map<std::string, int> ranks = [] {
        std::map<std::string, int> table;
        for (const std::string& merge : parts.merges) table.emplace(merge, static_cast<int>(table.size()));
        return table;
      }();
      std::vector<std::string> symbols;
      for (const char c : word) symbols.emplace_back(1, c);
      for (;;) {
        int best = INT_MAX;
        size_t where = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
          const auto found = ranks.find(symbols[i] + " " + symbols[i + 1]);
          if (found != ranks.end() && found->second < best) best = found->second, where = i;
        }
        if (best == INT_MAX) break;
        symbols[where] += symbols[where + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
      }
      std::vector<int32_t> ids;
      for (const std::string& symbol : symbols) ids.push_back(tokenizer->token(symbol));
      return ids;
    }();
    RC_ASSERT(tokenizer->encode(word, kPlain) == parts_ids);
  }));
}

TEST(Tokenizer, EncodesAnyBytesAndDecodesThemBack) {
  const auto gpt2 = make_packed("gpt-2");
  const auto spm = make_tok512();
  EXPECT_TRUE(rc::check("decode(encode(bytes)) == bytes", [&](const std::vector<uint8_t>& bytes) {
    const std::string text(bytes.begin(), bytes.end());
    RC_ASSERT(gpt2->decode(gpt2->encode(text, kPlain), true) == text);
    RC_ASSERT(spm->decode(spm->encode(text, kPlain), true) == text);
  }));
}

TEST(Tokenizer, CutsAtBytesThatAreNotUtf8) {
  std::vector<std::string_view> words;
  Pretokenizer("gpt-2").split("ab\xff\xfe cd\xe2\x82", words);
  EXPECT_EQ(words, (std::vector<std::string_view>{"ab", "\xff\xfe", " cd", "\xe2\x82"}));
  // A surrogate, an overlong form, a code point beyond the last; and the neighbours of each that are characters.
  for (const std::string_view wrong :
       {"\xed\xa0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"})
    EXPECT_EQ(utf8::character_length(wrong, 0), 0u);
  for (const std::string_view right :
       {"\xed\x9f\xbf", "\xc2\x80", "\xe0\xa0\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_EQ(utf8::character_length(right, 0), right.size());
}

TEST(Tokenizer, TakesOneWordOfAnyLengthWithoutQuadraticWork) {
  constexpr size_t kBytes = size_t{1} << (testing::kUnderSanitizer ? 16 : 19);
  const auto gpt2 = make_packed("gpt-2");
  const auto spm = make_tok512();
  for (const std::string& unit :
       {std::string("a"), std::string("ab"), std::string(" "), std::string("\n"), std::string("!?")}) {
    std::string text;
    // A quadratic merge of so many symbols would outlast the test's time limit.
    while (text.size() < kBytes) text += unit;
    EXPECT_EQ(gpt2->decode(gpt2->encode(text, kPlain), true), text);
    EXPECT_EQ(spm->decode(spm->encode(text, kPlain), true), text);
  }
}

TEST(Tokenizer, RefusesTextOfMoreTokensThanAreWantedAndNoOther) {
  const auto gpt2 = make_packed("gpt-2");
  const auto smollm = make_packed("smollm");
  const auto spm = make_tok512();
  VocabularyParts parts = byte_parts();
  parts.tokens['x'] = "no byte";
  const TokenizerCore leaves_out(make_vocabulary(parts));
  for (const TokenizerCore* tokenizer :
       std::initializer_list<const TokenizerCore*>{&*gpt2, &*smollm, &*spm, &leaves_out}) {
    const std::string ends = "<|endoftext|>", plain = tokenizer->as_plain_text(ends + ends);
    for (const std::string& text : {std::string("x"), std::string(1000, 'x'), std::string(1000, ' '), ends + ends + "a",
                                    plain, std::string("many words, 日本 and \xff\xfe 😀")}) {
      for (EncodeOptions options : {kPlain, kSpecial, EncodeOptions{}}) {
        const std::vector<int32_t> ids = tokenizer->encode(text, options);
        const auto count = static_cast<int64_t>(ids.size());
        options.at_most = count;
        EXPECT_EQ(tokenizer->encode(text, options), ids);
        if (!options.parse_special) {
          EXPECT_LE(tokenizer->least_tokens(text.size()), count);
        }
        if (count == 0) continue;
        options.at_most = count - 1;
        EXPECT_EQ(code_of([&] { tokenizer->encode(text, options); }), ErrorCode::context_full) << text;
      }
    }
  }
  EXPECT_EQ(leaves_out.least_tokens(1000), 0);
  EXPECT_GT(gpt2->least_tokens(1000), 7);  // of up to 128 bytes
}

TEST(Tokenizer, DecodesOneTokenAtATimeToTheSameBytes) {
  const auto tokenizer = make_packed("qwen2");
  const std::string text = "Größe: 日本語 🙂 x";
  std::string joined;
  for (const int32_t id : tokenizer->encode(text, kPlain)) joined += tokenizer->piece(id, true);
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, LeavesControlTokensOutOfTextOnRequest) {
  const auto tokenizer = make_packed("smollm");
  const std::vector<int32_t> ids = tokenizer->encode("<|im_start|>user<|im_end|>", kSpecial);
  EXPECT_EQ(tokenizer->decode(ids, true), "user");
  EXPECT_EQ(tokenizer->decode(ids, false), "<|im_start|>user<|im_end|>");
}

TEST(Tokenizer, PutsBosInFrontAndTakesTheLeadingSpaceAwayAgain) {
  const auto tokenizer = make_tok512();
  const std::vector<int32_t> ids = tokenizer->encode("Once upon", {});
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids[1], tokenizer->token("\u2581Once"));
  EXPECT_EQ(tokenizer->decode(ids, true), "Once upon");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s>Once upon");
  EXPECT_EQ(tokenizer->piece(ids[1], true), " Once");
  EXPECT_EQ(tokenizer->encode("", {}), (std::vector<int32_t>{1}));
}

// Only what is a piece of text comes of text; the type of each other token keeps it out, whatever its text is.
TEST(Tokenizer, MakesPiecesOfTextAndOfUserDefinedTokensAlone) {
  VocabularyParts parts;
  parts.model = "llama";
  parts.unknown = 0;
  const auto add = [&](const char* text, int type) {
    parts.tokens.emplace_back(text);
    parts.types.push_back(type);
    parts.scores.push_back(-static_cast<float>(parts.tokens.size()));
    return static_cast<int32_t>(parts.tokens.size()) - 1;
  };
  add("<unk>", 2);
  const int32_t space = add("\u2581", 1), a = add("a", 1), b = add("b", 1), c = add("c", 1);
  const int32_t own = add("\u2581a", 4);     // user-defined: of the space in front and a letter
  add("ab", 3), add("bc", 2), add("ca", 5);  // control, unknown, unused
  add("<0x42>", 1);                          // no byte: B has no token
  parts.add_space_prefix = true;
  const TokenizerCore tokenizer(make_vocabulary(parts));
  EXPECT_EQ(tokenizer.encode("a", kPlain), (std::vector<int32_t>{own}));
  EXPECT_EQ(tokenizer.encode("cabca", kPlain), (std::vector<int32_t>{space, c, a, b, c, a}));
  EXPECT_EQ(tokenizer.encode("B", kPlain), (std::vector<int32_t>{space, 0}));
}

TEST(Tokenizer, LeavesTheSpaceOfAControlTokenAsItIs) {
  VocabularyParts parts;
  parts.model = "llama";
  parts.tokens = {" <end>", "\u2581a"};
  parts.types = {3, 1};
  parts.scores = {0, 0};
  parts.add_space_prefix = true;
  const TokenizerCore tokenizer(make_vocabulary(parts));
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, 1}, false), " <end>a");
}

TEST(Tokenizer, PutsASpaceInFrontAgainAfterAControlToken) {
  const auto tokenizer = make_tok512();
  EXPECT_EQ(tokenizer->encode("a</s>a", kSpecial),
            (std::vector<int32_t>{tokenizer->token("\u2581a"), 2, tokenizer->token("\u2581a")}));
}

// In the form of Gemma's: runs of spaces are user-defined tokens. sentencepiece 0.2.3 gives these pieces.
TEST(Tokenizer, MergesSpacesToUserDefinedTokens) {
  VocabularyParts parts;
  parts.model = "llama";
  parts.unknown = 0;
  const std::tuple<const char*, int, float> pieces[] = {
      {"<unk>", 2, 0.f},    {"\u2581", 1, -1.f},      {"a", 1, -2.f},
      {"\u2581a", 1, -3.f}, {"\u2581\u2581", 4, 0.f}, {"\u2581\u2581\u2581", 4, 0.f},
      {"<x>", 4, 0.f},      {"<", 1, -4.f},           {"x", 1, -5.f}};
  for (const auto& [text, type, score] : pieces) {
    parts.tokens.emplace_back(text);
    parts.types.push_back(type);
    parts.scores.push_back(score);
  }
  parts.add_space_prefix = true;
  const TokenizerCore with_space(make_vocabulary(parts));
  EXPECT_EQ(with_space.encode("  a", kPlain), (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(with_space.encode("    a a", kPlain), (std::vector<int32_t>{5, 4, 2, 3}));
  EXPECT_EQ(with_space.encode("a<x>a", kPlain), (std::vector<int32_t>{3, 6, 2})) << "no space after a user-defined one";
  EXPECT_EQ(with_space.encode("a <x> a", kPlain), (std::vector<int32_t>{3, 1, 6, 3}));
  parts.add_space_prefix = false;
  const TokenizerCore without(make_vocabulary(parts));
  EXPECT_EQ(without.encode("  a", kPlain), (std::vector<int32_t>{4, 2}));
  EXPECT_EQ(without.encode("a<x>a", kPlain), (std::vector<int32_t>{2, 6, 2}));
}

TEST(Tokenizer, KnowsWhatEndsAGeneration) {
  auto parts = byte_parts({{"<|eot|>", 3}, {"<|other|>", 3}});
  parts.eos = 256;
  const TokenizerCore tokenizer(make_vocabulary(parts));
  EXPECT_TRUE(tokenizer.is_end(256));
  EXPECT_FALSE(tokenizer.is_end(257));
  for (int32_t id = -1; id > -200; --id) EXPECT_FALSE(tokenizer.is_end(id)) << id;
  EXPECT_FALSE(tokenizer.is_end(1 << 20));
}

TEST(Tokenizer, TakesTheUnknownTokenForAByteWithoutOne) {
  auto parts = byte_parts({{"<unk>", 2}});
  parts.tokens['!'] = "<gone>";  // "!" has no token
  parts.unknown = 256;
  EXPECT_EQ(TokenizerCore(make_vocabulary(parts)).encode("a!b", kPlain), (std::vector<int32_t>{'a', 256, 'b'}));
  parts.unknown = -1;
  EXPECT_EQ(TokenizerCore(make_vocabulary(parts)).encode("a!b", kPlain), (std::vector<int32_t>{'a', 'b'}));
}

// As Hugging Face's tokenizers do it: a byte that nothing stands for is gone before the first merge, in short words and
// in long ones, and the unknown token is a symbol like any other.
TEST(Tokenizer, MergesTheNeighboursOfAByteWithoutAToken) {
  auto parts = byte_parts({{"ab", 1}, {"abab", 1}, {"<unk>", 2}, {"a<unk>", 1}}, {"a b", "ab ab", "a <unk>"});
  parts.tokens['c'] = "<gone>";
  const TokenizerCore drops(make_vocabulary(parts));
  EXPECT_EQ(drops.encode("cacb", kPlain), (std::vector<int32_t>{256}));
  EXPECT_EQ(drops.encode("c", kPlain), (std::vector<int32_t>{}));
  std::string longer;
  for (int i = 0; i < 64; ++i) longer += "acb";
  EXPECT_EQ(drops.encode(longer, kPlain), std::vector<int32_t>(32, 257));
  parts.unknown = 258;
  const TokenizerCore marks(make_vocabulary(parts));
  EXPECT_EQ(marks.encode("bcacb", kPlain), (std::vector<int32_t>{'b', 258, 259, 'b'}));
}

TEST(Tokenizer, CutsWhiteSpaceAsUnicodeDefinesIt) {
  std::vector<std::string_view> words;
  Pretokenizer("gpt-2").split("a\u3000b\u180ec", words);  // U+180E is no white space
  EXPECT_EQ(words, (std::vector<std::string_view>{"a", "\u3000", "b", "\u180e", "c"}));
}

TEST(Tokenizer, FallsBackToTheOldPatternsOfFilesWithoutAName) {
  std::vector<std::string_view> words;
  Pretokenizer("default").split("a==b 12345 c!", words);
  EXPECT_EQ(words, (std::vector<std::string_view>{"a", "==", "b", " ", "123", "45", " c", "!"}));
}

// Names that llama.cpp gives the same pattern, and whether a word that is a token is taken whole and BOS put in front.
TEST(Tokenizer, KnowsPretokenizersByAllNamesOfTheirPattern) {
  const struct {
    std::string like;
    std::vector<std::string> names;
    bool as_llama3 = false;
  } groups[] = {
      {"smollm", {"starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"}},
      {"gpt-2",
       {"phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum", "exaone4",
        "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert"}},
      {"llama-bpe",
       {"llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       true},
      {"llama-bpe", {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}},
      {"qwen2", {"deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2", "kormo", "f2llmv2"}},
  };
  constexpr std::string_view kText = "It's 12345 words,  isn't IT'LL\n\n \tx==y  \u3000\u00e9\u4e2d9 \r\n!?\n";
  const auto words_of = [&](const std::string& name) {
    std::vector<std::string_view> words;
    Pretokenizer(name).split(kText, words);
    return words;
  };
  for (const auto& [like, names, as_llama3] : groups)
    for (const std::string& name : names) {
      EXPECT_EQ(words_of(name), words_of(like)) << name;
      EXPECT_EQ(Pretokenizer(name).takes_whole_words(), as_llama3) << name;
      EXPECT_EQ(pretokenizer_adds_bos(name), as_llama3) << name;
    }
  EXPECT_NE(words_of("gpt-2"), words_of("smollm"));
  EXPECT_NE(words_of("gpt-2"), words_of("llama-bpe"));
  EXPECT_NE(words_of("qwen2"), words_of("llama-bpe"));
}

TEST(Tokenizer, RefusesAnUnknownPretokenizerAndNamesTheKnown) {
  try {
    Pretokenizer("tekken");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    for (const char* name : {"tekken", "smollm", "gpt-2", "llama-bpe", "qwen2", "default"})
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << name;
  }
}

TEST(Tokenizer, RefusesMergesThatNameNoTokens) {
  for (const char* merge : {"a", "", " ", "a ", "a zz", "zz a", "a b"})
    EXPECT_EQ(code_of([&] { TokenizerCore(make_vocabulary(byte_parts({}, {merge}))); }), ErrorCode::invalid_file)
        << merge;
}

TEST(Tokenizer, RefusesScoresThatAreNotOneFiniteNumberAToken) {
  auto parts = test::read_tok512();
  parts.scores[7] = NAN;
  EXPECT_EQ(code_of([&] { make_vocabulary(parts); }), ErrorCode::invalid_file);
  parts.scores.pop_back();
  EXPECT_EQ(code_of([&] { make_vocabulary(parts); }), ErrorCode::invalid_file);
}

TEST(Tokenizer, RefusesIdsThatAreNotTokens) {
  const auto tokenizer = make_tok512();
  for (const int32_t id : {-1, 512, INT_MAX, INT_MIN})
    EXPECT_EQ(code_of([&] { (void)tokenizer->piece(id, true); }), ErrorCode::invalid_token) << id;
  const std::vector<int32_t> ids = {1, 512};
  EXPECT_EQ(code_of([&] { (void)tokenizer->decode(ids, true); }), ErrorCode::invalid_token);
}

// sentencepiece 0.2.3 gives these pieces: of two "ll" that overlap the left one merges.
TEST(Tokenizer, MergesPiecesOfEqualScoreFromTheLeft) {
  const auto tokenizer = make_tok512();
  const int32_t space_l = tokenizer->token("\u2581l"), ll = tokenizer->token("ll"), l = tokenizer->token("l");
  EXPECT_EQ(tokenizer->encode("llll", kPlain), (std::vector<int32_t>{space_l, ll, l}));
  EXPECT_EQ(tokenizer->encode("lllll", kPlain), (std::vector<int32_t>{space_l, ll, ll}));
}

TEST(Tokenizer, RefusesACharacterThatNothingStandsFor) {
  VocabularyParts parts;
  parts.model = "llama";
  parts.tokens = {"a"};
  parts.types = {1};
  parts.scores = {0};
  const TokenizerCore tokenizer(make_vocabulary(parts));
  EXPECT_EQ(tokenizer.encode("aa", kPlain), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(code_of([&] { (void)tokenizer.encode("ab", kPlain); }), ErrorCode::invalid_token);
}

// A start-up of the program must not wait for its tokenizer.
TEST(Tokenizer, IsReadyWithinMilliseconds) {
  const Vocabulary vocabulary = make_vocabulary(test::read_packed_vocabulary("smollm"));
  double best = 1e9;
  for (int run = 0; run < 5; ++run) {
    Vocabulary copy = vocabulary;
    const auto begin = std::chrono::steady_clock::now();
    const TokenizerCore tokenizer(std::move(copy));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  RecordProperty("best_ms", std::to_string(best * 1e3));
  EXPECT_LT(best, 1.0) << "seconds; about 0.005 on an idle machine, more in sanitizer builds";
}

}  // namespace
}  // namespace weft
