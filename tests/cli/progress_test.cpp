#include "cli/progress.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

const std::string kLabel = "loading /home/somebody/.cache/weft/models/SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(Shorten, LeavesOutTheMiddle) {
  EXPECT_EQ(shorten("short", 5), "short");
  EXPECT_EQ(shorten("0123456789", 9), "01...6789");
  EXPECT_EQ(shorten("0123456789", 3), "...");
  EXPECT_EQ(shorten("0123456789", 1), ".");
  EXPECT_EQ(shorten("0123456789", 0), "");
  EXPECT_EQ(shorten("a\nb\033[2J", 9), "a?b?[2J");
}

TEST(Shorten, CutsBetweenCharactersAndCountsWideOnesTwice) {
  EXPECT_EQ(shorten("äöüäöüäöü", 9), "äöüäöüäöü");
  EXPECT_EQ(shorten("äöüäöüäöü", 8), "ä...üäöü");
  EXPECT_EQ(shorten("日本語日本語", 12), "日本語日本語");
  EXPECT_EQ(shorten("日本語日本語", 11), "日...日本語");
}

TEST(ProgressLine, FitsTerminalsOfAnyWidth) {
  for (size_t columns = 0; columns <= 200; ++columns)
    for (const double fraction : {-1., 0., 0.3, 1., 2.}) {
      const std::string line = progress_line(kLabel, fraction, columns);
      EXPECT_LT(line.size(), std::max<size_t>(1, columns)) << columns << ": " << line;
      EXPECT_EQ(line.find('%') != line.npos, columns > 4) << columns;
    }
  const std::string line = progress_line(kLabel, 0.5, 80);
  EXPECT_TRUE(line.ends_with("Q4_1.gguf [###########            ]  50%")) << line;
  EXPECT_TRUE(line.starts_with("loading /")) << line;
  EXPECT_TRUE(progress_line(kLabel, 0.5, 120).find(kLabel) == 0) << "it is cut without need";
}

}  // namespace
}  // namespace weft::cli
