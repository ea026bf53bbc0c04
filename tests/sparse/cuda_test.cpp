// The CUDA text of every operator is one that NVRTC takes. Where there is none, that is skipped, and the summary says so.
#include <gtest/gtest.h>

#include <span>

#include "jit/build.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/sparse/ready_programs.h"
#include "tests/support/sanitizers.h"

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
// Sanitizers watch who makes the texts, and not the compiler.
constexpr std::string_view kArchitectures[] = {"sm_80", "sm_90a"};
INSTANTIATE_TEST_SUITE_P(Architecture, Cuda,
                         ::testing::ValuesIn(std::span(kArchitectures).first(weft::testing::kUnderSanitizer ? 1 : 2)),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace weft::sparse::test
