// The CUDA text of every operator is one that NVRTC takes. Where there is none, that is skipped, and the summary says so.
#include <gtest/gtest.h>

#include "jit/build.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/sparse/ready_programs.h"

namespace weft::sparse::test {
namespace {

class Cuda : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
};

TEST_P(Cuda, TextOfEveryOperatorCompiles) {
  for (const ReadyCase& c : all_cases()) {
    const Operator op =
        compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"});
    const auto built =
        jit::build({.name = "sparse " + c.name, .text = op.text("cuda"), .target = jit::nvrtc_target(GetParam())});
    EXPECT_NE(built.bytes.find("weft_"), std::string::npos) << c.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Architecture, Cuda, ::testing::Values("sm_80", "sm_90a"),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace weft::sparse::test
