#include "serve/answer_text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace weft::serve {
namespace {

TEST(AnswerText, HoldsBackWhatMayBecomeAStopText) {
  AnswerText text({"END", "xy"});
  EXPECT_EQ(text.push("one E"), "one ");
  EXPECT_EQ(text.push("N"), "");
  EXPECT_EQ(text.push("Dless"), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.push("more"), "");
  EXPECT_EQ(text.finish(), "");
}

TEST(AnswerText, EndsBeforeTheFirstOfSeveralStopTextsWhateverTheirOrder) {
  for (const std::vector<std::string>& stops : {std::vector<std::string>{"b", "a"}, {"a", "b"}}) {
    AnswerText text(stops);
    EXPECT_EQ(text.push("xaxbx"), "x");
    EXPECT_TRUE(text.stopped());
  }
}

TEST(AnswerText, SaysWhatWasHeldBackOnceItIsNoStopText) {
  AnswerText text({"END"});
  EXPECT_EQ(text.push("EN"), "");
  EXPECT_EQ(text.push("EN"), "EN");
  EXPECT_EQ(text.finish(), "EN");
  EXPECT_FALSE(text.stopped());
}

TEST(AnswerText, EndsBeforeTheFirstStopTextHoweverTheBytesAreCut) {
  EXPECT_TRUE(rc::check("cut anywhere", [] {
    const auto letters = *rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    const auto stop = *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b')));
    AnswerText text({stop});
    std::string said;
    for (size_t at = 0; at < letters.size();) {
      const size_t count = *rc::gen::inRange<size_t>(1, 4);
      said += text.push(letters.substr(at, count));
      at += count;
    }
    said += text.finish();
    RC_ASSERT(said == letters.substr(0, letters.find(stop)));
  }));
}

TEST(AnswerText, FindsStopTextsBeyondAscii) {
  AnswerText text({"→→"});
  EXPECT_EQ(text.push("a\xe2\x86"), "a");
  EXPECT_EQ(text.push("\x92"), "");
  EXPECT_EQ(text.push("→b"), "");
  EXPECT_TRUE(text.stopped());
}

}  // namespace
}  // namespace weft::serve
