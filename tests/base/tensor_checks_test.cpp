#include "base/tensor_checks.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "weft/error.h"

namespace weft {
namespace {

// What is refused, or nothing.
std::string refusal(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  static float memory[1];
  try {
    check_written("op", "y", TensorView(memory, DType::fp32, shape, strides));
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), "invalid_stride");
    return error.what();
  }
  return "";
}

TEST(WrittenTensors, MayHaveGapsAxesInAnyOrderAndNegativeStrides) {
  EXPECT_EQ(refusal({4, 2, 8}, {16, 8, 1}), "");
  EXPECT_EQ(refusal({4, 2, 8}, {100, 10, 1}), "");
  EXPECT_EQ(refusal({4, 2, 8}, {8, 32, 1}), "");
  EXPECT_EQ(refusal({4, 2, 8}, {-16, 8, -1}), "");
  EXPECT_EQ(refusal({4, 2, 8}, {8, 32, 1}), "");
  EXPECT_EQ(refusal({2, 3, 1, 5}, {15, 5, 0, 1}), "");  // one element has no step
  EXPECT_EQ(refusal({2, 0, 5}, {0, 0, 0}), "");         // no element
  EXPECT_EQ(refusal({2, 3}, {3, 1}), "");               // the closest that there is
  EXPECT_EQ(refusal({}, {}), "");
}

TEST(WrittenTensors, MayNotOverlapThemselves) {
  const std::string text = refusal({4, 2, 8}, {0, 8, 1});
  for (const char* part : {"op: y: [4, 2, 8]", "[0, 8, 1]", "stride 0", "axis 0"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_NE(refusal({4, 2, 8}, {16, 4, 1}), "");  // heads half over each other
  EXPECT_NE(refusal({4, 2, 8}, {15, 8, 1}), "");  // by one element
  EXPECT_NE(refusal({2, 3}, {2, 1}), "");
  EXPECT_NE(refusal({4, 2, 8}, {-15, 8, 1}), "");
  EXPECT_NE(refusal({3, 3}, {1, 1}), "");
  EXPECT_NE(refusal({2, 2}, {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::min()}), "");
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  EXPECT_NE(refusal({3, 3, 3}, {kFar, kFar - 1, 1}), "");  // sums beyond 64 bits
}

// Of small tensors every element is looked at: none that shares memory passes.
TEST(WrittenTensors, ThatPassHaveAllElementsApart) {
  std::mt19937 random(11);
  int passed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<int64_t> shape(1 + random() % 3), strides;
    for (int64_t& extent : shape) extent = 1 + static_cast<int64_t>(random() % 4);
    for (size_t axis = 0; axis < shape.size(); ++axis) strides.push_back(static_cast<int64_t>(random() % 25) - 12);
    if (!refusal(shape, strides).empty()) continue;
    ++passed;
    std::set<int64_t> seen;
    int64_t size = 1;
    for (const int64_t extent : shape) size *= extent;
    for (int64_t element = 0; element < size; ++element) {
      int64_t rest = element, at = 0;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        at += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
      }
      ASSERT_TRUE(seen.insert(at).second);
    }
  }
  EXPECT_GT(passed, 1000);
}

}  // namespace
}  // namespace weft
