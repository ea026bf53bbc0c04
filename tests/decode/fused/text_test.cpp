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
  for (const auto& [edge, n] :
       {std::pair(EdgeForm::counter, 4096), std::pair(EdgeForm::tagged, 4096), std::pair(EdgeForm::tagged, 2048)}) {
    weft::testing::count_cubin();
    const cuda::KernelText text = deep_linear_text({.n = n, .workers = 132, .edge = edge});
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
