// What tests write goes with them, however they end.
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

TEST(TempFolder, GoesWithItsOwnerAndAllThatIsInIt) {
  std::string path;
  try {
    const TempFolder folder;
    path = folder.path();
    fs::create_directory(folder.path("below"));
    folder.write("below/file", "text");
    EXPECT_EQ(fs::file_size(folder.path("below/file")), 4u);
    throw std::runtime_error("a test that fails");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TempFolder, GoesWithAProcessThatExitsBeforeItsOwnerAndStaysWhereThatWasForked) {
  const TempFolder parents;
  EXPECT_EXIT(
      {
        setenv("TMPDIR", parents.path().c_str(), 1);
        const TempFolder own;
        exit(fs::exists(parents.path("") + fs::path(own.path()).filename().string()) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_TRUE(fs::is_directory(parents.path()));
  EXPECT_TRUE(fs::is_empty(parents.path()));
}

}  // namespace
}  // namespace weft::testing
