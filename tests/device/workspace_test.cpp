#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "weft/device.h"
#include "weft/error.h"

namespace weft {
namespace {

class WorkspaceOf : public ::testing::TestWithParam<size_t> {};

TEST_P(WorkspaceOf, IsZeroAlignedAndWritable) {
  const size_t bytes = GetParam();
  const Workspace workspace(Device::cpu(), bytes);
  ASSERT_EQ(workspace.bytes(), bytes);
  const size_t alignment = bytes >= (size_t{2} << 20) ? size_t{2} << 20 : 64;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace.data()) % alignment, 0);
  auto* data = static_cast<unsigned char*>(workspace.data());
  EXPECT_TRUE(std::all_of(data, data + bytes, [](unsigned char c) { return c == 0; }));
  std::memset(data, 0xab, bytes);
  EXPECT_EQ(data[bytes - 1], 0xab);
}
INSTANTIATE_TEST_SUITE_P(Sizes, WorkspaceOf,
                         ::testing::Values(size_t{1}, size_t{63}, size_t{4096}, (size_t{2} << 20) - 1, size_t{2} << 20,
                                           (size_t{5} << 20) + 12345));

// What was written in one that has ended is not found in the next, which is likely to lie at the same place.
TEST(Workspace, OfMemoryThatWasUsedIsZeroToo) {
  for (const size_t bytes : {size_t{64}, size_t{4000}, size_t{100'000}, size_t{1} << 20, size_t{3} << 20})
    for (int again = 0; again < 4; ++again) {
      const Workspace workspace(Device::cpu(), bytes);
      auto* data = static_cast<unsigned char*>(workspace.data());
      ASSERT_TRUE(std::all_of(data, data + bytes, [](unsigned char c) { return c == 0; })) << bytes;
      std::memset(data, 0xab, bytes);
    }
}

TEST(Workspace, OfNothingHasNoData) {
  EXPECT_EQ(Workspace().data(), nullptr);
  EXPECT_EQ(Workspace(Device::cpu(), 0).data(), nullptr);
}

TEST(Workspace, MovesItsMemory) {
  for (size_t bytes : {size_t{100}, size_t{3} << 20}) {
    Workspace a(Device::cpu(), bytes);
    void* data = a.data();
    static_cast<char*>(data)[bytes - 1] = 7;
    Workspace b(std::move(a));
    EXPECT_EQ(b.data(), data);
    Workspace c(Device::cpu(), 64);
    c = std::move(b);
    EXPECT_EQ(c.data(), data);
    EXPECT_EQ(c.bytes(), bytes);
    EXPECT_EQ(static_cast<char*>(c.data())[bytes - 1], 7);
  }
}

// Of the address space, too, which is reserved for alignment.
TEST(Workspace, GivesBackAllThatItTook) {
  const auto pages = [] {
    size_t total = 0;
    std::ifstream("/proc/self/statm") >> total;
    return total;
  };
  const size_t before = pages();
  for (int i = 0; i < 100; ++i) Workspace(Device::cpu(), (size_t{3} << 20) + 1);
  EXPECT_LT(pages(), before + (size_t{64} << 20) / 4096);
}

ErrorCode code_of(Device device, size_t bytes, std::string* message = nullptr) {
  try {
    Workspace workspace(device, bytes);
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::invalid_argument;
}

TEST(Workspace, SaysThatMemoryIsOut) {
  EXPECT_EQ(code_of(Device::cpu(), size_t{1} << 60), ErrorCode::out_of_memory);
  EXPECT_EQ(code_of(Device::cpu(), SIZE_MAX), ErrorCode::out_of_memory);
}

TEST(Workspace, RefusesADeviceThatIsNotThere) {
  setenv("WEFT_CUDA_LIBS", "none", 1);  // before this program asks for the driver, whatever this machine has
  std::string message;
  EXPECT_EQ(code_of(Device::cuda(0), 64, &message), ErrorCode::unsupported);
  EXPECT_NE(message.find("workspace: required cuda:0, supported cpu, missing CUDA: WEFT_CUDA_LIBS=none"),
            std::string::npos)
      << message;
  EXPECT_EQ(code_of({DeviceKind::cpu, 5}, 64, &message), ErrorCode::unsupported);
  EXPECT_NE(message.find("workspace: required cpu:5, supported cpu, missing cpu:5"), std::string::npos) << message;
  EXPECT_NE(message.find("there is one CPU device, index 0"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft
