#include "decode/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "models/utf8.h"

namespace weft::decode {
namespace {

TEST(TextStream, HoldsBytesBackUntilTheirCharacterIsWhole) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.push("\x99"), "");
  EXPECT_EQ(stream.push("\x82z"), "🙂z");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, MarksBytesThatAreNoCharacter) {
  TextStream stream;
  EXPECT_EQ(stream.push("a\xff\xfe"), "a\uFFFD");
  EXPECT_EQ(stream.push("b\xe2\x82"), "b");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push("\xe2(x"), "\uFFFD(x");
  EXPECT_EQ(valid_utf8("\xed\xa0\x80|\xc0\xaf"), "\uFFFD|\uFFFD");
}

TEST(TextStream, GivesValidTextWhateverTheBytesAndHoweverTheyAreCut) {
  EXPECT_TRUE(rc::check("pieces of any bytes", [](const std::vector<std::string>& pieces) {
    TextStream stream;
    std::string text;
    for (const std::string& piece : pieces) {
      const std::string part = stream.push(piece);
      RC_ASSERT(valid_utf8(part) == part);
      text += part;
    }
    text += stream.finish();
    RC_ASSERT(valid_utf8(text) == text);
  }));
}

TEST(TextStream, KeepsValidTextAsItIsByteByByte) {
  const std::string text = "aé€🙂 日本語\n\x7f";
  TextStream stream;
  std::string out;
  for (const char c : text) out += stream.push(std::string(1, c));
  EXPECT_EQ(out, text);
}

TEST(TextStream, SaysInWhichCharacterThatMayComeApartBytesBegin) {
  EXPECT_TRUE(
      rc::check("valid text, cut anywhere", [](const std::vector<uint8_t>& codes, const std::vector<bool>& cuts) {
        std::string text;
        // 1 to 4 bytes; squares of more than 235 may be halves of surrogates.
        for (const uint32_t code : codes) utf8::append(text, code < 236 ? code * code : 0x1f600 + code);
        TextStream stream;
        for (size_t at = 0, next; at < text.size(); at = next) {
          for (next = at + 1; next < text.size() && (next >= cuts.size() || !cuts[next]);) ++next;
          const std::string piece = text.substr(at, next - at);
          RC_ASSERT(stream.offset_of(piece) == num_characters(text.substr(0, at + 1)) - 1);
          stream.push(piece);
        }
      }));
  TextStream stream;
  stream.push("a\xe2");
  EXPECT_EQ(stream.offset_of("\x82"), 1);
  EXPECT_EQ(stream.offset_of("b"), 2);
  EXPECT_EQ(stream.offset_of("\xc3"), 2);
  EXPECT_EQ(stream.offset_of("\xff"), 1);  // one mark for both
  EXPECT_EQ(stream.offset_of(""), 1);
}

}  // namespace
}  // namespace weft::decode
