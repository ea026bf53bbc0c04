// Texts compiled and loaded for a card, with a driver that is none (tests/device/cuda/fake_driver.h).
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "jit/nvrtc/module.h"
#include "jit/nvrtc/toolchain.h"
#include "support.h"
#include "tests/device/cuda/fake_driver.h"

namespace weft::jit {
namespace {

// Before anything asks for the driver. It is for a CUDA that every NVRTC makes code for, and what WEFT_CUDA_LIBS named
// before is looked into behind it.
const int kFake = [] {
  const char* before = std::getenv("WEFT_CUDA_LIBS");
  const std::string folders =
      std::string(WEFT_FAKE_DRIVER_FOLDER) + (before != nullptr ? ":" + std::string(before) : "");
  setenv("FAKE_CUDA_VERSION", "99000", 1);
  setenv("FAKE_CUDA_CAPABILITY", "86", 1);
  return setenv("WEFT_CUDA_LIBS", folders.c_str(), 1);
}();

cuda::fake::State& state() {
  void* library = dlopen(WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1", RTLD_NOW);
  return *reinterpret_cast<decltype(&weft_fake_driver)>(dlsym(library, "weft_fake_driver"))();
}
long num_loads() { return std::count(state().calls.begin(), state().calls.end(), "cuModuleLoadData"); }

class CudaModuleTest : public JitTest {
 protected:
  CudaModuleTest() { state() = {}; }
  void SetUp() override {
    const CompilerSearch search = nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
};

TEST_F(CudaModuleTest, IsBuiltForItsCardAndLoadedOnce) {
  const std::string text = "extern \"C\" __global__ void weft_zero(float* x) { *x = 0; }\n";
  cuda::Card& card = cuda::Card::at(0);
  const CudaModule first = cuda_module(card, "zero", text), second = cuda_module(card, "by another name", text);
  EXPECT_EQ(first.origin, Origin::compiler);
  EXPECT_EQ(second.origin, Origin::memory);
  EXPECT_EQ(first.module, second.module);
  EXPECT_EQ(num_loads(), 1);
  EXPECT_TRUE(
      state().image.starts_with("\x7f"
                                "ELF"));
  const CudaModule other = cuda_module(cuda::Card::at(1), "zero", text);
  EXPECT_EQ(other.origin, Origin::disk);
  EXPECT_NE(other.module, first.module);
  EXPECT_EQ(num_loads(), 2);
  const auto flagged = cuda_module(card, "zero", text, {"-DOTHER"});
  EXPECT_EQ(flagged.origin, Origin::compiler);
}

// A card of its own process: what it can do is read once.
TEST(CudaModuleProcess, IsRefusedForACardThatNoCubinIsMadeFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("FAKE_CUDA_CAPABILITY", "100", 1);
        const Error error = error_of([] { cuda_module(cuda::Card::at(0), "attend", "int x;\n"); });
        std::fprintf(stderr, "%s\n", error.what());
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "unsupported: 'attend': required compute capability 10.0 of cuda:0 \\(Fake H100\\), supported are cubins for "
      "sm_75, "
      "sm_80, sm_86, sm_89, sm_90a");
}

}  // namespace
}  // namespace weft::jit
