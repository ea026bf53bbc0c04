// Of programs that run on a card: where there is none, all of their tests are skipped, and say so.
#include <gtest/gtest.h>

#include "device/cuda/card.h"
#include "jit/nvrtc/toolchain.h"

namespace weft::testing {
namespace {

class NeedsACard : public ::testing::Environment {
 public:
  void SetUp() override {
    if (cuda::num_cards() == 0) GTEST_SKIP() << "no card here: " << cuda::find_driver().tried;
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried;
  }
};
const auto* const environment = ::testing::AddGlobalTestEnvironment(new NeedsACard);

}  // namespace
}  // namespace weft::testing
