// The operators' kernels compile for architectures with and without each form of their text, and take the registers
// that a table says. Where there is no NVRTC these tests are skipped, and say so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string_view>
#include <vector>

#include "jit/build.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/toolchain.h"
#include "ops/cuda/kernels.h"
#include "tests/support/cubins.h"

namespace weft::ops {
namespace {

class OperatorTextFor : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
};

TEST_P(OperatorTextFor, TakesTheResourcesOfTheTable) {
  const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
  if (search.compiler->version != "NVRTC 12.9")
    GTEST_SKIP() << "the table is of NVRTC 12.9; here is " << search.compiler->version;
  std::string taken, expected;
  std::vector<KernelText> texts{norm_kernel(),
                                append_kernel(DType::int8, KvScales::token),
                                append_kernel(DType::int4, KvScales::token_group),
                                append_kernel(DType::fp8_e5m2, KvScales::token_group),
                                qkv_kernel(DType::bf16, KvScales::none, DType::bf16),
                                embed_kernel(WeightType::q4_k),
                                linear_kernel(WeightType::q4_1, 1, 4, true),
                                linear_kernel(WeightType::q4_1, 8, 4, false),
                                linear_kernel(WeightType::q6_k, 1, 4, false),
                                linear_kernel(WeightType::bf16, 1, 4, false),
                                greedy_kernel(),
                                draw_kernel(),
                                draw_probabilities_kernel(),
                                summarise_kernel(DType::bf16, DType::bf16),
                                choose_pages_kernel(DType::bf16, DType::bf16, 4),
                                set_pages_kernel()};
  // As matrices of a model of 8B have them (tiled_form_of).
  if (GetParam() != "sm_75")
    for (const TiledLinearForm& form :
         {TiledLinearForm{.weights = WeightType::bf16, .warps = 16, .ahead = 8},
          {.weights = WeightType::bf16, .bands = 2, .gated = true, .warps = 16, .ahead = 4},
          {.weights = WeightType::bf16, .rows = 8, .warps = 16, .ahead = 4},
          {.weights = WeightType::bf16, .parts = 3, .warps = 16, .ahead = 8},
          {.weights = WeightType::q8_0, .warps = 8, .ahead = 4},
          {.weights = WeightType::q4_0, .warps = 8, .ahead = 8},
          {.weights = WeightType::q4_0, .bands = 2, .gated = true, .warps = 8, .ahead = 4},
          {.weights = WeightType::q4_1, .warps = 8, .ahead = 7},
          {.weights = WeightType::q4_g128, .warps = 8, .ahead = 4},
          {.weights = WeightType::q4_0, .rows = 8, .bands = 2, .gated = true, .warps = 8, .ahead = 2}})
      texts.push_back(tiled_linear_kernel(form));
  if (GetParam() == "sm_90a") texts.push_back(choose_by_products_kernel(128));
  if (GetParam() != "sm_75") {
    for (const WeightType type :
         {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_g128})
      texts.push_back(tiled_many_kernel(type, 2));
    for (const KernelText& text : {tiled_many_kernel(WeightType::bf16, 3), split_kernel(2), sum_splits_kernel()})
      texts.push_back(text);
  }
  for (const KernelText& text : texts) {
    weft::testing::count_cubin();
    const jit::Built built =
        jit::build({.name = text.symbol, .text = text.text(), .target = jit::nvrtc_target(GetParam())});
    for (const jit::KernelResources& kernel : jit::kernel_resources(built.bytes)) {
      EXPECT_EQ(kernel.static_shared_bytes, 0) << kernel.name;
      taken += fmt::format("{} {} {} {}\n", GetParam(), kernel.name, kernel.registers, kernel.stack_bytes);
    }
  }
  std::ifstream table(WEFT_KERNEL_RESOURCES);
  for (std::string line; std::getline(table, line);)
    if (line.starts_with(GetParam())) expected += line + "\n";
  EXPECT_EQ(taken, expected) << "the table's lines:\n" << taken;
}
// sm_80 has the forms of sm_86, and sm_89 its registers, to one kernel each.
constexpr std::string_view kArchitectures[] = {"sm_75", "sm_86", "sm_90a"};
INSTANTIATE_TEST_SUITE_P(Architecture, OperatorTextFor, ::testing::ValuesIn(kArchitectures),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace weft::ops
