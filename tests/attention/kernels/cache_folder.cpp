// Variants that these tests compile go to a folder of this process, never to the user's.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace {

class CacheFolder : public ::testing::Environment {
 public:
  void SetUp() override {
    char folder[] = "/tmp/weft_kernels_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    setenv("WEFT_CACHE_DIR", folder, 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_;
};
[[maybe_unused]] const auto* const registered = ::testing::AddGlobalTestEnvironment(new CacheFolder);

}  // namespace
