// The CUDA text of every operator is one that NVRTC takes. Where there is none, that is skipped, and the summary says so.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jit/build.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/sparse/ready_programs.h"
#include "tests/support/cubins.h"
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

std::string without(std::string text, std::string_view word) {
  for (size_t at = 0; (at = text.find(word, at)) != text.npos;) text.erase(at, word.size());
  return text;
}

// One text of all, a namespace each: what a compilation takes before its first kernel is half of a text's time. Lines of
// errors have the operator's name.
TEST_P(Cuda, TextOfEveryOperatorCompiles) {
  std::string text;
  std::vector<std::string> names;
  for (const ReadyCase& c : all_cases()) {
    const Operator op =
        compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"});
    names.push_back("op" + std::to_string(names.size()) + "_");
    text += "namespace " + names.back() + " {\n#line 1 \"" + c.name + "\"\n" +
            without(op.text("cuda"), "extern \"C\" ") + "}\n";
  }
  weft::testing::count_cubin();
  const auto built = jit::build({.name = "sparse operators", .text = text, .target = jit::nvrtc_target(GetParam())});
  for (const std::string& name : names) EXPECT_NE(built.bytes.find(name), std::string::npos) << name;
}
// Sanitizers watch who makes the texts, and not the compiler.
constexpr std::string_view kArchitectures[] = {"sm_80", "sm_90a"};
INSTANTIATE_TEST_SUITE_P(Architecture, Cuda,
                         ::testing::ValuesIn(std::span(kArchitectures).first(weft::testing::kUnderSanitizer ? 1 : 2)),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace weft::sparse::test
