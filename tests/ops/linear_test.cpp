#include "ops/gemm/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/cpuid.h"
#include "ops/gemm/packed.h"
#include "tests/ops/exact_sum.h"
#include "tests/ops/weights.h"
#include "weft/error.h"

namespace weft {
namespace {

using gemm::PackedLinear;
using test::is_quantised;
using test::kWeightTypes;
using test::random_weights;
using test::Weights;
using test::whole_blocks;

constexpr Precision kPrecisions[] = {Precision::exact, Precision::standard, Precision::fast};
std::vector<float> random_activations(int64_t m, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(m * cols));
  for (float& value : x) value = normal(random);
  return x;
}

PackedLinear pack(const Weights& w, Precision precision, Isa isa, WorkerTeam& team) {
  const gemm::WeightSource source = w.source();
  return gemm::pack_linear({&source, 1}, precision, isa, team);
}

std::vector<float> multiply(const PackedLinear& packed, const std::vector<float>& x, int64_t m, WorkerTeam& team) {
  gemm::Scratch scratch;
  std::vector<float> y(static_cast<size_t>(m * packed.rows()), std::nanf(""));
  gemm::linear(packed, x.data(), m, packed.cols(), y.data(), packed.rows(), scratch, team);
  return y;
}

class LinearOnIsa : public ::testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(, LinearOnIsa, ::testing::ValuesIn(supported_isas().begin(), supported_isas().end()),
                         [](const auto& isa) { return std::string(to_string(isa.param)); });

TEST_P(LinearOnIsa, AgreesWithFp64WithinTheStatedBound) {
  WorkerTeam team(2);
  for (WeightType type : kWeightTypes)
    for (auto [rows, width] : {std::pair<int64_t, int64_t>{1, 32}, {37, 96}, {48, 576}, {75, 1088}}) {
      const int64_t cols = whole_blocks(type, width);
      const Weights w = random_weights(type, rows, cols, 7);
      for (Precision precision : kPrecisions) {
        const PackedLinear packed = pack(w, precision, GetParam(), team);
        ASSERT_EQ(packed.rows(), rows);
        ASSERT_EQ(packed.cols(), cols);
        for (int64_t m : {1, 2, 3, 7, 8, 16, 33}) {
          const std::vector<float> x = random_activations(m, cols, static_cast<uint64_t>(m));
          const std::vector<float> y = multiply(packed, x, m, team);
          for (int64_t r = 0; r < m; ++r)
            for (int64_t n = 0; n < rows; ++n) {
              const test::ExactSum exact = test::exact_sum(w, x.data() + r * cols, n, precision, GetParam());
              ASSERT_LE(std::abs(y[r * rows + n] - exact.value), exact.bound)
                  << to_string(type) << " precision " << static_cast<int>(precision) << " " << rows << "x" << cols
                  << " m " << m << " row " << r << " output " << n;
            }
        }
      }
    }
}

TEST_P(LinearOnIsa, TakesFloatWeightsOfAnyWidth) {
  WorkerTeam team(3);
  for (WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16})
    for (int64_t cols : {1, 7, 171, 257, 515}) {
      const Weights w = random_weights(type, 19, cols, 3);
      for (Precision precision : kPrecisions)
        for (int64_t m : {1, 9}) {
          const std::vector<float> x = random_activations(m, cols, 5);
          const std::vector<float> y = multiply(pack(w, precision, GetParam(), team), x, m, team);
          for (int64_t r = 0; r < m; ++r)
            for (int64_t n = 0; n < 19; ++n) {
              const test::ExactSum exact = test::exact_sum(w, x.data() + r * cols, n, precision, GetParam());
              ASSERT_LE(std::abs(y[r * 19 + n] - exact.value), exact.bound);
            }
        }
    }
}

TEST_P(LinearOnIsa, GivesARowTheSameBitsAloneAndInAnyBatch) {
  for (WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 1120);
    const Weights w = random_weights(type, 53, cols, 11);
    const std::vector<float> x = random_activations(401, cols, 12);  // crosses row blocks, tiles and chunks of k
    for (Precision precision : kPrecisions) {
      WorkerTeam two(2), seven(7);
      const PackedLinear packed = pack(w, precision, GetParam(), two);
      const std::vector<float> all = multiply(packed, x, 401, seven);
      for (int64_t m : {1, 3, 5, 7, 8, 13, 200}) {
        const std::vector<float> some = multiply(packed, x, m, two);
        ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
            << to_string(type) << " precision " << static_cast<int>(precision) << " m " << m;
      }
    }
  }
}

TEST_P(LinearOnIsa, HoldsTheLargestIntegersWithoutOverflow) {
  WorkerTeam team(1);
  for (WeightType type : kWeightTypes)
    for (const int byte : {0x80, 0x7f, 0xff, 0x00}) {
      if (!is_quantised(type)) continue;
      const Weights w = random_weights(type, 40, 256, 1, 0.5f, byte);
      double expected = 0, size = 0;
      for (int64_t k = 0; k < w.cols; ++k) {
        expected += w.values[static_cast<size_t>(k)] * 3e5;
        size += std::abs(w.values[static_cast<size_t>(k)]) * 3e5;
      }
      for (Precision precision : kPrecisions)
        for (float sign : {1.f, -1.f})
          for (int64_t m : {1, 12}) {
            const std::vector<float> x(static_cast<size_t>(m * w.cols), sign * 3e5f);
            for (float y : multiply(pack(w, precision, GetParam(), team), x, m, team))
              ASSERT_NEAR(y, sign * expected, 1e-4 * size + 1) << to_string(type) << " byte " << byte << " m " << m;
          }
    }
}

TEST_P(LinearOnIsa, TakesZeroTinyHugeAndNonFiniteActivations) {
  WorkerTeam team(2);
  const float inf = std::numeric_limits<float>::infinity();
  for (WeightType type : kWeightTypes)
    for (Precision precision : kPrecisions) {
      const int64_t cols = whole_blocks(type, 64);
      const Weights w = random_weights(type, 35, cols, 2);
      const PackedLinear packed = pack(w, precision, GetParam(), team);
      std::vector<float> x(static_cast<size_t>(10 * cols), 0.f);
      for (int64_t k = 0; k < cols; ++k) x[1 * cols + k] = 1e-44f, x[2 * cols + k] = k % 2 ? 1e36f : -1e36f;
      x[3 * cols + 5] = std::bit_cast<float>(0x7f800001u);  // a bf16 keeps none of the bits that make it NaN
      x[4 * cols + 9] = inf;
      for (int64_t k = 0; k < cols; ++k) x[5 * cols + k] = 1.f;
      const std::vector<float> y = multiply(packed, x, 10, team);
      for (int64_t n = 0; n < 35; ++n) {
        EXPECT_EQ(y[n], 0.f);
        EXPECT_LT(std::abs(y[35 + n]), 1e-30f);
        EXPECT_TRUE(std::isfinite(y[2 * 35 + n]));
        EXPECT_TRUE(std::isnan(y[3 * 35 + n]));
        EXPECT_FALSE(std::isfinite(y[4 * 35 + n]));
        EXPECT_TRUE(std::isfinite(y[5 * 35 + n]));  // other rows do not feel it
        EXPECT_EQ(y[9 * 35 + n], 0.f);
      }
    }
}

TEST_P(LinearOnIsa, FusesSourcesOfDifferentTypes) {
  WorkerTeam team(2);
  const Weights a = random_weights(WeightType::q4_1, 20, 64, 1), b = random_weights(WeightType::q8_0, 33, 64, 2),
                c = random_weights(WeightType::f32, 5, 64, 3);
  const gemm::WeightSource sources[] = {a.source(), b.source(), c.source()};
  for (Precision precision : kPrecisions) {
    const PackedLinear fused = gemm::pack_linear(sources, precision, GetParam(), team);
    ASSERT_EQ(fused.rows(), 58);
    for (int64_t m : {1, 4, 20}) {
      const std::vector<float> x = random_activations(m, 64, 9), y = multiply(fused, x, m, team);
      int64_t first = 0;
      for (const Weights* part : {&a, &b, &c}) {
        const std::vector<float> alone = multiply(pack(*part, precision, GetParam(), team), x, m, team);
        for (int64_t r = 0; r < m; ++r)
          for (int64_t n = 0; n < part->rows; ++n) ASSERT_EQ(y[r * 58 + first + n], alone[r * part->rows + n]);
        first += part->rows;
      }
    }
  }
}

TEST_P(LinearOnIsa, TilesOfEitherKindOfMachineGiveTheSameBits) {
  WorkerTeam team(2);
  for (WeightType type : kWeightTypes)
    for (Precision precision : kPrecisions) {
      const Weights w = random_weights(type, 75, whole_blocks(type, 352), 7);
      const PackedLinear packed = pack(w, precision, GetParam(), team);
      for (int64_t m : {1, 3, 7, 8, 9, 12, 13, 16, 17, 25, 40, 200}) {
        const std::vector<float> x = random_activations(m, packed.cols(), 4);
        std::vector<float> y[2];
        for (const bool halved : {false, true}) {
          packed.impl().tile_rows = packed.impl().kernels->tile_rows[halved];
          y[halved] = multiply(packed, x, m, team);
        }
        ASSERT_EQ(0, std::memcmp(y[0].data(), y[1].data(), y[0].size() * sizeof(float)))
            << to_string(type) << " precision " << static_cast<int>(precision) << " m " << m;
      }
    }
}

TEST_P(LinearOnIsa, MakesEachRowOnceAndAppliesTheGateToTheSameProducts) {
  WorkerTeam team(3);
  gemm::Scratch scratch;
  const auto gate = [](const float* g, const float* up, long long n, float* y) {
    for (long long i = 0; i < n; ++i) y[i] = g[i] * g[i] + up[i];
  };
  for (auto [first, second] : {std::pair{WeightType::q4_1, WeightType::q4_1}, {WeightType::f32, WeightType::q8_0}}) {
    const Weights a = random_weights(first, 75, 96, 1), b = random_weights(second, 75, 96, 2);
    const gemm::WeightSource sources[] = {a.source(), b.source()};
    for (Precision precision : kPrecisions) {
      const PackedLinear packed = gemm::pack_linear(sources, precision, GetParam(), team);
      for (int64_t m : {1, 5, 40, 401}) {
        const std::vector<float> x = random_activations(m, 96, 4), both = multiply(packed, x, m, team);
        std::vector<float> made(x.size(), std::nanf("")), y(static_cast<size_t>(m) * 80, 77.f);
        std::vector<int> times(static_cast<size_t>(m), 0);
        const auto before = [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) ++times[static_cast<size_t>(r)];
          std::copy(x.begin() + begin * 96, x.begin() + end * 96, made.begin() + begin * 96);
        };
        gemm::linear(packed, made.data(), m, 96, y.data(), 80, scratch, team,
                     {.prologue = before, .gate_epilogue = gate});
        for (int64_t r = 0; r < m; ++r) {
          ASSERT_EQ(times[static_cast<size_t>(r)], 1);
          for (int64_t n = 0; n < 80; ++n) {
            const float *g = both.data() + r * 150 + n, *up = g + 75;
            float expected = 77.f;
            if (n < 75) gate(g, up, 1, &expected);
            ASSERT_EQ(y[r * 80 + n], expected) << to_string(first) << " m " << m << " row " << r << " output " << n;
          }
        }
      }
    }
  }
}

TEST(Linear, EndsWithTheErrorOfAWorkerThatMakesRows) {
  WorkerTeam team(3);
  const Weights w = random_weights(WeightType::q4_1, 75, 96, 1);
  const PackedLinear packed = pack(w, Precision::standard, current_isa(), team);
  gemm::Scratch scratch;
  for (int64_t m : {1, 9, 64, 200}) {
    const std::vector<float> x = random_activations(m, 96, 4);
    std::vector<float> y(static_cast<size_t>(m * 75));
    const auto fail_on = [m](int64_t row) {
      return [m, row](int64_t begin, int64_t end) {
        if (begin <= row % m && row % m < end) throw Error(ErrorCode::io_error, "row");
      };
    };
    for (const int64_t row : {0, 8, 63})
      EXPECT_THROW(gemm::linear(packed, x.data(), m, 96, y.data(), 75, scratch, team,
                                {.prologue = fail_on(row), .gate_epilogue = nullptr}),
                   Error)
          << m;
    gemm::linear(packed, x.data(), m, 96, y.data(), 75, scratch, team);
    EXPECT_EQ(y, multiply(packed, x, m, team)) << m;
  }
}

TEST_P(LinearOnIsa, ReadsRowsBackAndTakesTheStatedBytes) {
  WorkerTeam team(2);
  for (WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 192);
    const Weights w = random_weights(type, 64, cols, 21);
    const PackedLinear packed = pack(w, Precision::standard, GetParam(), team);
    // K types and groups of 128 keep a scale a block of 32, 5-bit and 6-bit integers take 8.
    const double more = type == WeightType::q5_0      ? 34.0 / 22
                        : type == WeightType::q4_k    ? 22.0 / 18
                        : type == WeightType::q6_k    ? 36.0 / 26.25
                        : type == WeightType::q4_g128 ? 72.0 / 66
                                                      : 1;
    EXPECT_EQ(static_cast<double>(packed.bytes()), static_cast<double>(w.bytes.size()) * more) << to_string(type);
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r : {0, 1, 17, 63}) {
      gemm::read_row(packed, r, row.data());
      for (int64_t k = 0; k < cols; ++k)
        ASSERT_NEAR(row[k], w.values[r * cols + k], 1e-7) << to_string(type) << " row " << r << " element " << k;
    }
    EXPECT_THROW(gemm::read_row(packed, 64, row.data()), Error);
    EXPECT_THROW(gemm::read_row(packed, -1, row.data()), Error);
  }
}

TEST_P(LinearOnIsa, LeavesWhatLiesBetweenTheRowsOfYAlone) {
  WorkerTeam team(2);
  gemm::Scratch scratch;
  const Weights w = random_weights(WeightType::q4_0, 21, 32, 5);
  const PackedLinear packed = pack(w, Precision::standard, GetParam(), team);
  for (int64_t m : {2, 11}) {
    const std::vector<float> x = random_activations(m, 40, 3);
    std::vector<float> y(static_cast<size_t>(m) * 29, 77.f);
    gemm::linear(packed, x.data(), m, 40, y.data(), 29, scratch, team);
    for (int64_t r = 0; r < m; ++r)
      for (int64_t n = 21; n < 29; ++n) ASSERT_EQ(y[r * 29 + n], 77.f);
  }
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  WorkerTeam team(1);
  const Weights a = random_weights(WeightType::f32, 4, 8, 1), b = random_weights(WeightType::f32, 4, 9, 1);
  const gemm::WeightSource unequal[] = {a.source(), b.source()};
  EXPECT_THROW(gemm::pack_linear(unequal, Precision::exact, Isa::plain, team), Error);
  EXPECT_THROW(gemm::pack_linear({}, Precision::exact, Isa::plain, team), Error);
  const PackedLinear alone = pack(a, Precision::exact, Isa::plain, team);
  gemm::Scratch scratch;
  float x[8] = {}, y[4];
  const auto gate = [](const float*, const float*, long long, float*) {};
  EXPECT_THROW(gemm::linear(alone, x, 1, 8, y, 4, scratch, team, {.prologue = {}, .gate_epilogue = gate}), Error);
  EXPECT_THROW(gemm::linear(alone, x, -1, 8, y, 4, scratch, team), Error);
  EXPECT_THROW(gemm::linear(alone, x, 1, 7, y, 4, scratch, team), Error);
  EXPECT_THROW(gemm::linear(alone, x, 1, 8, y, 3, scratch, team), Error);
  gemm::WeightSource ragged = a.source();
  ragged.type = WeightType::q4_0;
  EXPECT_THROW(gemm::pack_linear({&ragged, 1}, Precision::exact, Isa::plain, team), Error);
  ragged.type = WeightType::q4_k, ragged.cols = 128;
  EXPECT_THROW(gemm::pack_linear({&ragged, 1}, Precision::exact, Isa::plain, team), Error);
}

}  // namespace
}  // namespace weft
