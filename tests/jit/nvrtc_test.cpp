// NVRTC as a toolchain. Where there is none, what needs one is skipped, and says so.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "jit/build.h"
#include "jit/key.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/library.h"
#include "jit/nvrtc/toolchain.h"
#include "support.h"
#include "tests/support/cubins.h"
#include "tests/support/sanitizers.h"

namespace weft::text {
extern const char* const sum;
extern const char* const gemm;
extern const char* const attend;
extern const char* const convert;
extern const char* const rows;
extern const char* const instructions;
extern const char* const persistent;
extern const char* const warpgroup;
}  // namespace weft::text

namespace weft::jit {
namespace {

namespace fs = std::filesystem;

struct KernelsText {
  std::string head, instances = {};
  bool is_of_sm_90a = false;
};
const std::vector<KernelsText>& texts() {
  static const std::vector<KernelsText> all = {
      {text::sum},
      {text::gemm},
      {text::attend},
      {text::convert},
      {text::rows},
      {text::instructions},
      {.head = text::persistent, .is_of_sm_90a = true},
      // Of the forms of products the widest, with A in either place, and the one that scores of 128 dims take.
      {text::warpgroup,
       "WEFT_WGMMA_FORM(8)\nWEFT_WGMMA_FORM(16)\nWEFT_WGMMA_FORM(27)\nWEFT_WARPGROUP_ATTEND(0)\nWEFT_WARPGROUP_GATHER("
       "1)\n",
       true}};
  return all;
}

class NvrtcTest : public JitTest {
 protected:
  static Request request_of(std::string text, std::string_view architecture = "sm_90a") {
    return {.name = "kernel", .text = std::move(text), .target = nvrtc_target(architecture)};
  }
};

class NvrtcCompiles : public NvrtcTest {
 protected:
  void SetUp() override {
    const CompilerSearch search = nvrtc_toolchain().find(nullptr);
    if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  }
};

class NvrtcFor : public NvrtcCompiles, public ::testing::WithParamInterface<std::string_view> {};

// With the compiler that the tests pin, to the resources of the table: a change that costs registers, or spills, is
// seen where it is made.
TEST_P(NvrtcFor, TheKernelsThatRunOnTheHostCompile) {
  std::string taken;
  // Sanitizers watch the toolchain, and not the compiler.
  for (const KernelsText& text : std::span(texts()).first(weft::testing::kUnderSanitizer ? 1 : texts().size())) {
    if (text.is_of_sm_90a && GetParam() != "sm_90a") continue;
    weft::testing::count_cubin();
    const auto built = build(request_of(text.head + text.instances, GetParam()));
    EXPECT_EQ(built.origin, Origin::compiler);
    EXPECT_TRUE(
        built.bytes.starts_with("\x7f"
                                "ELF"));
    EXPECT_EQ(static_cast<unsigned char>(built.bytes[18]), 190) << "not a CUDA machine";  // e_machine
    EXPECT_EQ(contains(built.bytes, "weft_gemm_bf16"), text.head == text::gemm && GetParam() != "sm_75");
    for (const KernelResources& kernel : kernel_resources(built.bytes)) {
      EXPECT_EQ(kernel.static_shared_bytes, 0) << kernel.name;
      if (GetParam() != "sm_75") {
        EXPECT_EQ(kernel.stack_bytes, 0) << kernel.name << " keeps registers in memory";
      }
      taken += fmt::format("{} {} {} {}\n", kernel.name, GetParam(), kernel.registers, kernel.stack_bytes);
    }
  }
  if (weft::testing::kUnderSanitizer) return;
  const CompilerSearch search = nvrtc_toolchain().find(nullptr);
  if (search.compiler->version != "NVRTC 12.9")
    GTEST_SKIP() << "the table is of NVRTC 12.9; here is " << search.compiler->version;
  std::string expected;
  std::ifstream table(WEFT_KERNEL_RESOURCES);
  for (std::string line; std::getline(table, line);)
    if (contains(line, fmt::format(" {} ", GetParam()))) expected += line + "\n";
  EXPECT_EQ(taken, expected) << "the table's lines:\n" << taken;
}
INSTANTIATE_TEST_SUITE_P(
    Architecture, NvrtcFor,
    ::testing::ValuesIn(nvrtc_architectures().first(weft::testing::kUnderSanitizer ? 1 : nvrtc_architectures().size())),
    [](const auto& architecture) { return std::string(architecture.param); });

// Two kernels whose text says what they need.
TEST_F(NvrtcCompiles, AndTheCubinTellsWhatItsKernelsTake) {
  const auto built =
      build(request_of("extern \"C\" __global__ void weft_small(float* x) { x[threadIdx.x] = 0; }\n"
                       "extern \"C\" __global__ void weft_large(float* x, int n) {\n"
                       "  __shared__ float shared[100];\n"
                       "  float local[300];\n"
                       "  for (int i = 0; i < n; ++i) local[i] = x[i];\n"
                       "  shared[threadIdx.x] = local[n];\n"
                       "  __syncthreads();\n"
                       "  local[n + 1] = shared[n];\n"
                       "  for (int i = 0; i < n; ++i) x[i] = local[i];\n"
                       "}\n"));
  const auto kernels = kernel_resources(built.bytes);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "weft_large");
  EXPECT_GE(kernels[0].stack_bytes, 1200);
  EXPECT_EQ(kernels[0].static_shared_bytes, 400);
  EXPECT_EQ(kernels[1].name, "weft_small");
  EXPECT_EQ(kernels[1].stack_bytes, 0);
  EXPECT_EQ(kernels[1].static_shared_bytes, 0);
  EXPECT_GT(kernels[1].registers, 0);
  EXPECT_LT(kernels[1].registers, kernels[0].registers);
  for (size_t size = 0; size < built.bytes.size() / 2; size += 97)
    EXPECT_THROW(kernel_resources(std::string_view(built.bytes).substr(0, size)), Error) << size;
}

TEST_F(NvrtcCompiles, OnceAndThenComesFromDisk) {
  const Request request = request_of("extern \"C\" __global__ void weft_zero(float* x) { x[threadIdx.x] = 0; }\n");
  const auto first = build(request), second = build(request);
  EXPECT_EQ(first.origin, Origin::compiler);
  EXPECT_EQ(second.origin, Origin::disk);
  EXPECT_EQ(first.bytes, second.bytes);
  const auto entries = list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_TRUE(entries[0].compiler.starts_with("NVRTC 1")) << entries[0].compiler;
}

TEST_F(NvrtcCompiles, FunctionsThatBearNoMarkAsDeviceCode) {
  EXPECT_NO_THROW(
      build(request_of("namespace weft { struct Mask { bool sees(int i) const { return i % 2 == 0; } }; }\n"
                       "inline auto twice = [](float x) { return 2 * x; };\n"
                       "extern \"C\" __global__ void k(float* x, int i) { if (weft::Mask{}.sees(i)) *x = "
                       "twice(*x); }\n")));
}

TEST_F(NvrtcCompiles, ErrorsPointAtTheVariantsOwnLine) {
  const Error error = error_of([&] {
    build(request_of(
        "namespace weft {}\n#line 1 \"variant CapAndBias\"\nstruct CapAndBias {\n  int f() { return missing; }\n};\n"));
  });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "'kernel' does not compile with NVRTC 1")) << error.what();
  EXPECT_TRUE(contains(error.what(), "variant CapAndBias(2): error: identifier \"missing\" is undefined"))
      << error.what();
  EXPECT_TRUE(contains(error.what(), ">   2 |   int f() { return missing; }")) << error.what();
}

TEST_F(NvrtcCompiles, RefusesCallsOfWhatNothingDefines) {
  const Error error = error_of([&] {
    build(
        request_of("extern \"C\" float of_a_library(float);\nextern \"C\" __global__ void k(float* x) { *x = "
                   "of_a_library(*x); }\n"));
  });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_TRUE(contains(error.what(), "uses what its text does not define: of_a_library;")) << error.what();
}

TEST_F(NvrtcCompiles, ReadsNoHeader) {
  const Error error = error_of([&] { build(request_of("#include <cuda_fp16.h>\n")); });
  EXPECT_TRUE(contains(error.what(), "cuda_fp16.h")) << error.what();
}

TEST_F(NvrtcTest, RefusesAnArchitectureThatItMakesNoCodeFor) {
  const Error error = error_of([] { nvrtc_target("sm_70"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_TRUE(contains(error.what(), "required sm_70, supported sm_75, sm_80, sm_86, sm_89, sm_90a, missing sm_70"));
}

TEST_F(NvrtcTest, KnowsWhoseCubinsACardLoads) {
  EXPECT_EQ(architecture_of(7, 0), "");
  EXPECT_EQ(architecture_of(7, 5), "sm_75");
  EXPECT_EQ(architecture_of(8, 0), "sm_80");
  EXPECT_EQ(architecture_of(8, 6), "sm_86");
  EXPECT_EQ(architecture_of(8, 7), "sm_86");
  EXPECT_EQ(architecture_of(8, 9), "sm_89");
  EXPECT_EQ(architecture_of(9, 0), "sm_90a");
  EXPECT_EQ(architecture_of(10, 0), "");
}

TEST_F(NvrtcTest, HasKeysOfItsOwnForEachArchitecture) {
  const RequestId a = request_id(request_of("x", "sm_80")), b = request_id(request_of("x", "sm_86"));
  EXPECT_EQ(a.target, "nvidia sm_80");
  EXPECT_NE(a.digest, b.digest);
}

TEST_F(NvrtcTest, IsSwitchedOffByNone) {
  const ScopedEnv none("WEFT_CUDA_LIBS", "none");
  const Error error = error_of([&] { build(request_of("int x;\n")); });
  EXPECT_EQ(error.code(), ErrorCode::no_compiler);
  EXPECT_TRUE(contains(error.what(), "WEFT_CUDA_LIBS=none switches CUDA off")) << error.what();
  EXPECT_TRUE(contains(error.what(), "pip install nvidia-cuda-nvrtc-cu12")) << error.what();
}

// Folders of its own where nothing else is looked into: names alone, which are no libraries.
TEST_F(NvrtcTest, SaysWhichFilesWereTriedAndWhyEachIsNone) {
  fs::create_directories(folder_ + "/old");
  fs::create_directories(folder_ + "/broken");
  std::ofstream(folder_ + "/old/libnvrtc.so.11") << "x";
  std::ofstream(folder_ + "/broken/libnvrtc.so.12") << "no library";
  std::ofstream(folder_ + "/broken/libnvrtc.so.12.4.99") << "the same under another name";
  const ScopedEnv folders("WEFT_CUDA_LIBS", (folder_ + "/old:" + folder_ + "/broken").c_str());
  const auto found = find_nvrtc();
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0].path, folder_ + "/old/libnvrtc.so.11");
  EXPECT_EQ(found[1].path, folder_ + "/broken/libnvrtc.so.12");
  std::string why;
  EXPECT_EQ(load_nvrtc(found[1].path, why), nullptr);
  EXPECT_TRUE(contains(why, "libnvrtc.so.12")) << why;
  const CompilerSearch search = nvrtc_toolchain().find(nullptr);
  if (search.compiler == nullptr) {
    EXPECT_TRUE(contains(search.tried, "/old/libnvrtc.so.11 (too old: required is 12 or newer)")) << search.tried;
    EXPECT_TRUE(contains(search.tried, "/broken/libnvrtc.so.12 (")) << search.tried;
  } else {
    EXPECT_FALSE(search.compiler->path.starts_with(folder_));
  }
}

TEST_F(NvrtcTest, LiesAmongPythonsPackagesBesideAFolderOfPrograms) {
  const std::string packages = folder_ + "/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib";
  fs::create_directories(packages);
  fs::create_directories(folder_ + "/bin");
  std::ofstream(packages + "/libnvrtc.so.12") << "x";
  std::ofstream(packages + "/libnvrtc-builtins.so.12.9") << "x";
  const ScopedEnv unnamed("WEFT_CUDA_LIBS", nullptr), path("PATH", (folder_ + "/bin").c_str());
  bool is_found = false;
  for (const NvrtcFile& file : find_nvrtc())
    if (file.path == packages + "/libnvrtc.so.12") {
      is_found = true;
      EXPECT_EQ(file.major, 12);
      EXPECT_EQ(file.builtins, packages + "/libnvrtc-builtins.so.12.9");
    }
  EXPECT_TRUE(is_found);
}

TEST_F(NvrtcTest, SaysWhatDisassemblesWhereNothingDoes) {
  const std::string cubin = std::string(
                                "\x7f"
                                "ELF\2\1\1",
                                7) +
                            std::string(9, '\0') + std::string("\2\0\xbe\0", 4);
  EXPECT_TRUE(is_cubin(cubin + std::string(44, '\0')));
  EXPECT_FALSE(is_cubin(cubin));
  const ScopedEnv path("PATH", folder_.c_str()), home("CUDA_HOME", folder_.c_str());
  try {
    disassemble(cubin + std::string(44, '\0'));
    GTEST_SKIP() << "there is a toolkit below /usr/local";
  } catch (const Error& error) {
    if (error.code() == ErrorCode::invalid_file) GTEST_SKIP() << "there is a toolkit below /usr/local";
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("nvdisasm"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft::jit
