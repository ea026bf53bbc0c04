#include "jit/diagnostics.h"

#include <gtest/gtest.h>

#include "support.h"

namespace weft::jit {
namespace {

constexpr std::string_view kText =
    "namespace vocabulary {}\n"
    "#line 1 \"variant CapAndBias\"\n"
    "struct CapAndBias {\n"
    "  real logits_transform(P p, Score c, real s) {\n"
    "    return cap(s) + bias;\n"
    "  }\n"
    "};\n"
    "#line 40 \"weft/leaf\"\n"
    "void glue();\n";

TEST(ExplainErrors, ShowsTheVariantsOwnErrorsAndLines) {
  const std::string shown =
      explain_errors(kText,
                     "variant CapAndBias: In member function 'real CapAndBias::logits_transform(P, Score, real)':\n"
                     "variant CapAndBias:3:12: error: 'cap' was not declared in this scope\n"
                     "variant CapAndBias:3:21: error: 'bias' was not declared in this scope\n"
                     "weft/leaf:40:1: error: something that follows from it\n"
                     "cc1plus: some warnings being treated as errors\n");
  EXPECT_TRUE(contains(shown, "variant CapAndBias:3:12: error: 'cap' was not declared in this scope")) << shown;
  EXPECT_TRUE(contains(shown, "'bias' was not declared")) << shown;
  EXPECT_TRUE(contains(shown, ">   3 |     return cap(s) + bias;")) << shown;
  EXPECT_TRUE(contains(shown, "    2 |   real logits_transform")) << shown;
  EXPECT_FALSE(contains(shown, "glue")) << shown;
  EXPECT_FALSE(contains(shown, "something that follows")) << shown;
}

TEST(ExplainErrors, PointsAtTheVariantsCallWhenTheErrorLiesInTheVocabulary) {
  const std::string shown =
      explain_errors(kText,
                     "weft/vocabulary:7:3: error: static assertion failed: rank 2 needs 2 indices\n"
                     "variant CapAndBias:3:12:   required from here\n");
  EXPECT_TRUE(contains(shown, "rank 2 needs 2 indices")) << shown;
  EXPECT_TRUE(contains(shown, "variant CapAndBias:3:12:   required from here")) << shown;
  EXPECT_TRUE(contains(shown, ">   3 |     return cap(s) + bias;")) << shown;
}

TEST(ExplainErrors, ShowsTheGeneratedTextWhenTheVariantHasNoPartInIt) {
  const std::string shown = explain_errors(kText, "weft/leaf:40:6: error: no\n");
  EXPECT_TRUE(contains(shown, ">  40 | void glue();")) << shown;
}

TEST(ExplainErrors, NumbersATextWithoutDirectives) {
  const std::string shown =
      explain_errors("int a;\nint b\n", "<stdin>:2:6: error: expected initializer at end of input\n");
  EXPECT_TRUE(contains(shown, ">   2 | int b")) << shown;
}

TEST(ExplainErrors, ReadsWhatNvrtcSays) {
  const std::string shown = explain_errors(kText,
                                           "variant CapAndBias(3): error: identifier \"bias\" is undefined\n"
                                           "    return cap(s) + bias;\n                    ^\n\n"
                                           "weft/leaf(40): error: something that follows from it\n"
                                           "1 error detected in the compilation of \"<stdin>\".\n");
  EXPECT_TRUE(contains(shown, "  variant CapAndBias(3): error: identifier \"bias\" is undefined\n")) << shown;
  EXPECT_TRUE(contains(shown, ">   3 |     return cap(s) + bias;")) << shown;
  EXPECT_FALSE(contains(shown, "something that follows")) << shown;
}

TEST(ExplainErrors, PointsAtTheVariantsCallWhereNvrtcFindsTheErrorInTheVocabulary) {
  const std::string shown =
      explain_errors(kText,
                     "weft/vocabulary(7): error: expression must have class type but it has type \"float\"\n"
                     "          detected during instantiation of \"T weft::twice(T) [with T=float]\" at line 3 of "
                     "variant CapAndBias\n");
  EXPECT_TRUE(contains(shown, "weft/vocabulary(7): error: expression must have class type")) << shown;
  EXPECT_TRUE(contains(shown, "at line 3 of variant CapAndBias")) << shown;
  EXPECT_TRUE(contains(shown, ">   3 |     return cap(s) + bias;")) << shown;
}

TEST(ExplainErrors, CutsALongListShort) {
  std::string messages;
  for (int i = 1; i <= 50; ++i)
    messages += "variant V:" + std::to_string(i) + ":1: error: e" + std::to_string(i) + "\n";
  const std::string shown = explain_errors(kText, messages);
  EXPECT_TRUE(contains(shown, "e8\n")) << shown;
  EXPECT_FALSE(contains(shown, "e9\n")) << shown;
  EXPECT_TRUE(contains(shown, "and 42 more")) << shown;
}

TEST(ExplainErrors, PassesOnWhatItDoesNotUnderstand) {
  EXPECT_EQ(explain_errors(kText, "internal compiler error: boom\n"), "internal compiler error: boom\n");
  EXPECT_EQ(explain_errors("", ""), "");
  EXPECT_EQ(explain_errors("#line\n#line x \"\n#line 9999999999 \"a", "a:99999999999:1: error: x\n:::\n"),
            "a:99999999999:1: error: x\n:::\n");
}

}  // namespace
}  // namespace weft::jit
