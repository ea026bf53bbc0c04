// A card and a compiler that are none, whose launches do nothing (fake_driver.h, tests/ops/cuda/fake_nvrtc.cpp): what
// the product asks of them is counted.
//
//   TEST_F(FakeCard, ...) { ... kernel.run(workspace, tensors); EXPECT_EQ(driver_calls("cuMemcpyDtoHAsync"), 0); }
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>

#include "tests/device/cuda/fake_driver.h"

namespace weft::testing {

class FakeCard : public ::testing::Test {
 protected:
  FakeCard();

  static cuda::fake::State& driver();
  // Of a function of the driver, since forget_driver_calls.
  static int64_t driver_calls(std::string_view name);
  static void forget_driver_calls() { driver().calls.clear(); }
  // From now on memory of the card is as large as anyone asks, and holds nothing.
  static void have_memory_without_bytes();
};

}  // namespace weft::testing
