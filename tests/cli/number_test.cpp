#include "cli/number.h"

#include <gtest/gtest.h>

#include <limits>

#include "cli/arguments.h"
#include "weft/error.h"

namespace weft::cli {
namespace {

TEST(ParseNumber, TakesTheLimitsOfItsType) {
  EXPECT_EQ(parse_number<int>("-n", "-2147483648", {}), std::numeric_limits<int>::lowest());
  EXPECT_EQ(parse_number<uint64_t>("-n", "18446744073709551615", {}), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_number<float>("-n", "-1.5e2", {}), -150.f);
  EXPECT_THROW(parse_number<int>("-n", "2147483648", {}), Error);
  EXPECT_THROW(parse_number<uint64_t>("-n", "-1", {}), Error);
  EXPECT_THROW(parse_number<uint64_t>("-n", "-", {}), UsageError);
  EXPECT_THROW(parse_number<float>("-n", "inf", {}), UsageError);
}

TEST(ParseList, ChecksEachOfItsNumbers) {
  EXPECT_EQ(parse_list("--qo", "1,22,3", {}), (std::vector<int>{1, 22, 3}));
  const Allowed even{"even ones", [](double n) { return static_cast<int>(n) % 2 == 0; }};
  EXPECT_EQ(parse_list("--qo", "2", even), std::vector<int>{2});
  EXPECT_THROW(parse_list("--qo", "2,4,5", even), Error);
  EXPECT_THROW(parse_list("--qo", "2,", even), UsageError);
}

TEST(ParseWithUnit, MultipliesUpToItsHighest) {
  const std::map<std::string, uint64_t> units = {{"s", 1}, {"m", 60}};
  EXPECT_EQ(parse_with_unit("--age", "2m", units, 120), 120u);
  EXPECT_EQ(parse_with_unit("--age", "2 M", units, 120), 120u);
  EXPECT_EQ(parse_with_unit("--age", "120", units, 120), 120u);
  EXPECT_THROW(parse_with_unit("--age", "3m", units, 120), Error);
  EXPECT_THROW(parse_with_unit("--age", "121s", units, 120), Error);
  EXPECT_THROW(parse_with_unit("--age", "307445734561825861m", units, ~uint64_t{0}), Error);  // 2^64 + 44
  EXPECT_THROW(parse_with_unit("--age", "2h", units, 120), UsageError);
  EXPECT_THROW(parse_with_unit("--age", "m", units, 120), UsageError);
}

}  // namespace
}  // namespace weft::cli
