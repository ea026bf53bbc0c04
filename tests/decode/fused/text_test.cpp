// The kernels of fused decoding compile for the architecture that they run on, and take the registers that a table
// says. Where there is no NVRTC this is skipped, and says so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "decode/fused/cuda/deep_linear.h"
#include "jit/build.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/support/cubins.h"

namespace weft::decode::fused {
namespace {

TEST(FusedText, TakesTheResourcesOfTheTable) {
  const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
  if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  if (search.compiler->version != "NVRTC 12.9")
    GTEST_SKIP() << "the table is of NVRTC 12.9; here is " << search.compiler->version;
  std::string taken, expected;
  std::vector<DeepLinearOptions> all{{.n = 4096, .edge = EdgeForm::counter}, {.n = 2048}};
  for (const WeightType type :
       {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_g128})
    for (const int rows : {1, 8}) all.push_back({.n = 4096, .type = type, .rows = rows});
  for (DeepLinearOptions& options : all) {
    options.workers = 132;
    weft::testing::count_cubin();
    const cuda::KernelText text = deep_linear_text(options);
    const jit::Built built =
        jit::build({.name = text.symbol, .text = text.text(), .target = jit::nvrtc_target("sm_90a")});
    for (const jit::KernelResources& kernel : jit::kernel_resources(built.bytes)) {
      EXPECT_EQ(kernel.static_shared_bytes, 0) << kernel.name;
      EXPECT_EQ(kernel.stack_bytes, 0) << kernel.name << " keeps registers in memory";
      taken += fmt::format("sm_90a {} {} {}\n", kernel.name, kernel.registers, kernel.stack_bytes);
    }
  }
  std::ifstream table(WEFT_KERNEL_RESOURCES);
  for (std::string line; std::getline(table, line);)
    if (line.starts_with("sm_90a")) expected += line + "\n";
  EXPECT_EQ(taken, expected) << "the table's lines:\n" << taken;
}

}  // namespace
}  // namespace weft::decode::fused
