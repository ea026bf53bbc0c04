// Kernels of sm_90a through the runtime of the host machine: arguments with tensor maps, and clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "jit/cuda/tensor_map.h"
#include "tests/simt/boxes.h"
#include "tests/simt/host/host_machine.h"
#include "tests/simt/kernels/args.h"
#include "weft/device.h"

namespace weft::text {
extern const char* const warpgroup;
}  // namespace weft::text

namespace weft::simt {
namespace {

cuda::KernelText kernel_of(const char* symbol, int threads, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "tests/simt/kernels/warpgroup.h",
          .head = text::warpgroup,
          .threads = threads,
          .shared_bytes = shared_bytes};
}

TEST(HostRuntime, LaunchesWithTensorMaps) {
  testing::use_host_machine();
  const cuda::Runtime& on = cuda::runtime();
  const Device device = Device::cuda();
  const BoxCase& test = *std::find_if(std::begin(kBoxCases), std::end(kBoxCases), [](const BoxCase& box) {
    return std::string_view(box.name) == "a tile of keys";
  });
  Workspace from(device, test.tensor_bytes()), to(device, test.tensor_bytes()), shared(device, kMostBoxBytes);
  auto* const words = static_cast<unsigned*>(from.data());
  std::iota(words, words + test.tensor_bytes() / 4, 1u);
  BoxArgs args = test.args(from.data(), to.data(), static_cast<unsigned*>(shared.data()));
  for (abi::TensorMap* map : {&args.from, &args.to}) *map = cuda::tensor_map(on, device, map->layout, test.name);
  const cuda::KernelText text = kernel_of("weft_boxes", 64, kMostBoxBytes + 8);
  on.launch(on.load(device, text), text.grid(1), args, Stream());
  // The first row of the box: 16-byte chunks in their place, as the line it lies in is the first.
  const char* const row = static_cast<const char*>(from.data()) + 30 * 256 + 128;
  EXPECT_EQ(std::memcmp(shared.data(), row, 128), 0);
  EXPECT_EQ(std::memcmp(static_cast<const char*>(to.data()) + 5 * 256, row, 128), 0);
}

// Else what was compiled before an edit of one would be taken for what is asked for.
TEST(HostRuntime, KnowsEveryHeaderThatTextsAreCompiledWith) {
  const std::vector<std::string> known = headers_of_machine();
  const std::string command = std::string(WEFT_TEST_CXX) + " -std=c++20 -MM -I" WEFT_SOURCE_DIR
                                                           "/tests/simt/twins -I" WEFT_SOURCE_DIR
                                                           "/src -I" WEFT_SOURCE_DIR " -x c++ " WEFT_SOURCE_DIR
                                                           "/tests/simt/sparse/card_words.h -include " WEFT_SOURCE_DIR
                                                           "/tests/simt/kernels/warpgroup.h";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string included;
  for (int c; (c = std::fgetc(pipe)) != EOF;) included += static_cast<char>(c);
  ASSERT_EQ(pclose(pipe), 0);
  std::istringstream words(included);
  int of_tests = 0;
  for (std::string header; words >> header;) {
    if (header.find("/tests/simt/") == header.npos || header.find("/tests/simt/kernels/") != header.npos) continue;
    ++of_tests;
    EXPECT_NE(std::find(known.begin(), known.end(), header), known.end()) << header;
  }
  EXPECT_GT(of_tests, 10) << included;
}

TEST(HostRuntime, LaunchesClusters) {
  testing::use_host_machine();
  testing::host_multiprocessors = 4;
  const cuda::Runtime& on = cuda::runtime();
  const Device device = Device::cuda();
  Workspace x(device, 4 * 1024), y(device, 4 * 1024);
  auto* const words = static_cast<unsigned*>(x.data());
  std::iota(words, words + 1024, 1u);
  const cuda::KernelText text = kernel_of("weft_cluster", 256, 2048);
  cuda::Grid grid = text.grid(4);
  grid.cluster = 2;
  on.launch(on.load(device, text), grid, PersistentArgs{words, static_cast<unsigned*>(y.data()), nullptr, nullptr},
            Stream());
  const auto sum = [&](int cta, int i) { return words[256 * cta + 255 - i] * 31 + words[256 * (cta ^ 1) + 255 - i]; };
  for (int cta = 0; cta < 4; ++cta)
    for (int i = 0; i < 256; ++i)
      ASSERT_EQ(static_cast<const unsigned*>(y.data())[256 * cta + i], sum(cta, i) + sum(cta ^ 1, i))
          << cta << ", " << i;
}

}  // namespace
}  // namespace weft::simt
