// Variants that these tests compile go to a folder of this build, never to the user's: each text is compiled once for
// all test processes, and again only when it, its flags or its compiler changed.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace {

class CacheFolder : public ::testing::Environment {
 public:
  void SetUp() override {
    std::filesystem::create_directories(WEFT_TEST_KERNELS);
    setenv("WEFT_CACHE_DIR", WEFT_TEST_KERNELS, 1);
  }
};
[[maybe_unused]] const auto* const registered = ::testing::AddGlobalTestEnvironment(new CacheFolder);

}  // namespace
