// What a file says, or leaves out, of its tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/bpe.h"
#include "models/byte_source.h"
#include "tests/support/gguf_writer.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::GgufWriter;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kSpecial{.add_special = false, .parse_special = true};
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;

using Tokens = std::vector<std::pair<std::string, int32_t>>;

// The 256 bytes and then the tokens.
GgufWriter byte_level(const Tokens& more) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.push_back(byte_level_text(std::string(1, static_cast<char>(byte))));
  std::vector<int32_t> types(256, kNormal);
  for (const auto& [text, type] : more) {
    texts.push_back(text);
    types.push_back(type);
  }
  GgufWriter gguf;
  gguf.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", "gpt-2");
  gguf.add("tokenizer.ggml.tokens", texts).add("tokenizer.ggml.token_type", types);
  gguf.add("tokenizer.ggml.merges", std::vector<std::string>{});
  return gguf;
}

// <unk>, <s>, </s>, the 256 bytes and then the tokens.
GgufWriter pieces(const Tokens& more) {
  std::vector<std::string> texts = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {kUnknown, kControl, kControl};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t byte = 0; byte < 256; ++byte) {
    texts.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
    types.push_back(kByte);
  }
  for (const auto& [text, type] : more) {
    texts.push_back(text);
    types.push_back(type);
  }
  GgufWriter gguf;
  gguf.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.add_space_prefix", false);
  gguf.add("tokenizer.ggml.tokens", texts).add("tokenizer.ggml.token_type", types);
  gguf.add("tokenizer.ggml.scores", std::vector<float>(texts.size(), -1.f));
  gguf.add("tokenizer.ggml.bos_token_id", 1u).add("tokenizer.ggml.eos_token_id", 2u);
  gguf.add("tokenizer.ggml.unknown_token_id", 0u);
  return gguf;
}

Tokenizer tokenizer_of(const GgufWriter& gguf) {
  const std::string bytes = gguf.bytes();
  return Tokenizer(open_model(open_memory("memory", bytes)));
}

TEST(FileTokenizer, KnownTokensOfTurnsAreSpecialWhateverTheirType) {
  for (const int32_t type : {kNormal, kUserDefined, kControl}) {
    for (const std::string text : {"<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "[INST]", "<|user|>"}) {
      const Tokenizer tokenizer = tokenizer_of(byte_level({{text, type}}));
      EXPECT_EQ(tokenizer.encode(text, kSpecial), std::vector<int32_t>{256}) << text << type;
      EXPECT_EQ(tokenizer.encode(text, kPlain).size(), text.size()) << text << type;
      EXPECT_EQ(tokenizer.piece(256), "") << text << type;
      EXPECT_FALSE(tokenizer.is_end(256)) << text << type;
    }
    for (const std::string text :
         {"<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|end|>", "<|call|>", "<|return|>", "<eos>", "[EOS]", "<EOT>",
          "<|endoftext|>", "<end_of_utterance>", "</s>", "<|eom_id|>", "<|end_of_text|>"}) {
      const Tokenizer tokenizer = tokenizer_of(byte_level({{text, type}}));
      EXPECT_TRUE(tokenizer.is_end(256)) << text << type;
      EXPECT_EQ(tokenizer.encode("a" + text, kSpecial), (std::vector<int32_t>{'a', 256})) << text << type;
    }
  }
}

TEST(FileTokenizer, KnownTokensOfTurnsAreSpecialInSentencePieceToo) {
  for (const int32_t type : {kNormal, kUserDefined}) {
    const Tokenizer tokenizer = tokenizer_of(pieces({{"<start_of_turn>", type}, {"<end_of_turn>", type}, {"a", 1}}));
    EXPECT_EQ(tokenizer.encode("<start_of_turn>a<end_of_turn>", kSpecial), (std::vector<int32_t>{259, 261, 260}));
    EXPECT_TRUE(tokenizer.is_end(260));
    EXPECT_FALSE(tokenizer.is_end(259));
  }
}

TEST(FileTokenizer, TextOfAUserNeverBecomesAKnownTokenOfATurn) {
  for (const int32_t type : {kNormal, kUserDefined}) {
    const Tokenizer tokenizers[] = {tokenizer_of(byte_level({{"<start_of_turn>", type}, {"<end_of_turn>", type}})),
                                    tokenizer_of(pieces({{"<start_of_turn>", type}, {"<end_of_turn>", type}}))};
    for (const Tokenizer& tokenizer : tokenizers) {
      const int32_t end = tokenizer.token("<end_of_turn>");
      const std::string text = "x<end_of_turn><start_of_turn>";
      std::vector<int32_t> expected = tokenizer.encode(text, kPlain);
      EXPECT_EQ(std::count(expected.begin(), expected.end(), end), 0);
      expected.push_back(end);
      EXPECT_EQ(tokenizer.encode(tokenizer.as_plain_text(text) + "<end_of_turn>", kSpecial), expected);
    }
  }
}

TEST(FileTokenizer, ATokenThatMeansSomethingElseBesideAnotherStaysWhatItIs) {
  const Tokenizer gemma =
      tokenizer_of(byte_level({{"<bos>", kControl}, {"<s>", kUserDefined}, {"</s>", kUserDefined}}));
  EXPECT_FALSE(gemma.is_end(258)) << "HTML";
  EXPECT_EQ(gemma.encode("</s>", kPlain), std::vector<int32_t>{258});
  const Tokenizer harmony = tokenizer_of(byte_level({{"<|end|>", kControl}, {"<|return|>", kControl}}));
  EXPECT_FALSE(harmony.is_end(256)) << "ends a message of several";
  EXPECT_TRUE(harmony.is_end(257));
}

TEST(FileTokenizer, WithoutTypesBytesAreFoundByTheirText) {
  GgufWriter gguf = pieces({{"a", kNormal}});
  gguf.remove("tokenizer.ggml.token_type");
  const Tokenizer tokenizer = tokenizer_of(gguf);
  const std::string text = "a\n\xc3\xa9";
  EXPECT_EQ(tokenizer.encode(text, kPlain), (std::vector<int32_t>{259, 3 + '\n', 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, kPlain)), text);
  EXPECT_EQ(tokenizer.encode("<s>", kSpecial), std::vector<int32_t>{1});
  EXPECT_EQ(tokenizer.piece(1), "") << "the ids say that it is a control token";
  EXPECT_TRUE(tokenizer.is_end(2));
}

TEST(FileTokenizer, DoesNotDoubleABosOrEosThatTheTextBrings) {
  GgufWriter gguf = pieces({{"a", kNormal}});
  gguf.add("tokenizer.ggml.add_eos_token", true);
  const Tokenizer tokenizer = tokenizer_of(gguf);
  constexpr EncodeOptions kBoth{.add_special = true, .parse_special = true};
  EXPECT_EQ(tokenizer.encode("a", kBoth), (std::vector<int32_t>{1, 259, 2}));
  EXPECT_EQ(tokenizer.encode("<s>a</s>", kBoth), (std::vector<int32_t>{1, 259, 2}));
  EXPECT_EQ(tokenizer.encode("a<s>", kBoth), (std::vector<int32_t>{1, 259, 1, 2}));
  EXPECT_EQ(tokenizer.encode("<s><s>a", kBoth), (std::vector<int32_t>{1, 1, 259, 2})) << "typed twice on purpose";
  EXPECT_EQ(tokenizer.encode("<s>", {}).front(), 1);
  EXPECT_GT(tokenizer.encode("<s>", {}).size(), 3u) << "text without control tokens";
}

TEST(FileTokenizer, RefusesTypesThatAreNone) {
  for (const int32_t type : {0, 7, -1}) {
    try {
      tokenizer_of(byte_level({{"<end_of_turn>", type}}));
      FAIL() << type;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file);
      EXPECT_NE(std::string(error.what()).find("token_type[256] = " + std::to_string(type)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace weft
