#include "decode/conversation.h"

#include <gtest/gtest.h>

namespace weft::decode {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}{% if add_generation_prompt %}<go>{% endif %}";

TEST(Conversation, IsWhatTheTemplateMakesOfItsMessages) {
  const ModelFile file(std::string(WEFT_TEST_DATA) + "/stories260K.gguf");
  const Tokenizer tokenizer(file);
  const ChatTemplate chat_template(kTemplate);
  Conversation conversation(tokenizer, chat_template);
  const auto expect = [&](const std::string& text) {
    std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = false});
    ids.insert(ids.begin(), tokenizer.bos());
    EXPECT_EQ(conversation.tokens(), ids) << text;
  };
  conversation.add("user", "hi");
  expect("<user> hi<go>");
  conversation.add("assistant", "yes");
  expect("<user> hi<assistant> yes<go>");
  conversation.drop_last();
  expect("<user> hi<go>");
  conversation.add("user", "a\xff");
  expect("<user> hi<user> a\uFFFD<go>");
}

TEST(Conversation, AddsNoSecondBos) {
  const ModelFile file(std::string(WEFT_TEST_DATA) + "/stories260K.gguf");
  const Tokenizer tokenizer(file);
  const ChatTemplate chat_template("{{ bos_token }}{{ messages[0].content }}");
  Conversation conversation(tokenizer, chat_template);
  conversation.add("user", "hi");
  const std::vector<int32_t> ids = conversation.tokens();
  ASSERT_GT(ids.size(), 1u);
  EXPECT_EQ(ids[0], tokenizer.bos());
  EXPECT_NE(ids[1], tokenizer.bos());
}

}  // namespace
}  // namespace weft::decode
