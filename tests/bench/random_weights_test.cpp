// Random weights: what they mean is normal, rows differ, and many are made in little time.
#include "bench/random_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/clock.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/reference_weights.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

std::vector<double> values_of(WeightType type, const ops::WeightSource& source) {
  using testing::GgufWriter;
  const WeightBlock& block = weight_block(type);
  const int64_t count = source.rows * source.cols;
  std::vector<unsigned char> bytes(static_cast<size_t>(count / block.inputs * block.bytes));
  source.read(0, source.rows, bytes.data());
  std::vector<double> values(static_cast<size_t>(count));
  if (type == WeightType::q4_g128)
    testing::dequantise_q4_g128(bytes.data(), count, values.data());
  else
    testing::dequantise(type == WeightType::bf16   ? GgufWriter::kBF16
                        : type == WeightType::q8_0 ? GgufWriter::kQ8_0
                        : type == WeightType::q4_0 ? GgufWriter::kQ4_0
                                                   : GgufWriter::kQ4_1,
                        bytes.data(), count, values.data());
  return values;
}

TEST(RandomWeights, AreNormalInEveryType) {
  for (const std::string& name : random_weight_names()) {
    const WeightType type = weight_type_from_string(name);
    const RandomWeights random(type, 0.5f);
    const ops::WeightSource source = random.source(64, 1024);
    const std::vector<double> values = values_of(type, source);
    double sum = 0, squares = 0;
    int within = 0;
    for (const double value : values) sum += value, squares += value * value, within += std::fabs(value) < 0.5;
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, 0, 0.01) << name;
    EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.01) << name;
    EXPECT_NEAR(within / count, 0.683, 0.03) << name;  // of uniform ones 0.577
    // Rows are their own, read together or alone, and so are those of the next source.
    std::vector<char> two(static_cast<size_t>(2 * 1024 / weight_block(type).inputs * weight_block(type).bytes)),
        one = two;
    const size_t row = two.size() / 2;
    source.read(5, 7, two.data());
    source.read(6, 7, one.data());
    EXPECT_EQ(std::string(two.data() + row, row), std::string(one.data(), row)) << name;
    EXPECT_NE(std::string(two.data(), row), std::string(one.data(), row)) << name;
    random.source(64, 1024).read(6, 7, two.data());
    EXPECT_NE(std::string(two.data(), row), std::string(one.data(), row)) << name;
  }
}

TEST(RandomWeights, TakeLittleTime) {
  const ops::WeightSource source = RandomWeights(WeightType::q4_g128, 1).source(1 << 20, 8192);
  std::vector<char> some(size_t{1024} * 8192 / 128 * 66);
  double best = 1;
  for (int i = 0; i < 5; ++i)
    best = std::min(best, seconds_of([&] { source.read(i * 1024, (i + 1) * 1024, some.data()); }));
  fmt::print("{:.1f} GB of random weights a second\n", static_cast<double>(some.size()) / best * 1e-9);
  EXPECT_GT(static_cast<double>(some.size()) / best, 0.2e9);  // of several times that: sanitizers, busy machines
}

TEST(RandomWeights, RefuseWhatTheyAreNot) {
  EXPECT_THROW(RandomWeights(WeightType::q6_k, 1), Error);
  EXPECT_THROW(RandomWeights(WeightType::q4_g128, 1).source(4, 64), Error);
  EXPECT_THROW(weight_type_from_string("int4"), Error);
}

}  // namespace
}  // namespace weft::bench
