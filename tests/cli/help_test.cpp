#include "cli/help.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

TEST(Nearest, FindsTheWordWithTheFewestDifferences) {
  const std::vector<std::string> words = {"--prompt", "--precision", "--seed", "-p"};
  EXPECT_EQ(nearest("--promt", words), "--prompt");
  EXPECT_EQ(nearest("--sede", words), "--seed");
  EXPECT_EQ(nearest("--zzzzzzzzzz", words), "");
}

}  // namespace
}  // namespace weft::cli
