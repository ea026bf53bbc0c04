// Products with weights on a card, in the host machine, against fp64.
#include "ops/cuda/linear.h"

#include <cmath>
#include <random>

#include "ops/cuda/many_rows.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/ops/weights.h"

namespace weft {
namespace {

using test::kWeightTypes;
using test::random_weights;
using test::whole_blocks;

using CardLinear = testing::HostCard;

std::vector<float> random_floats(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  return x;
}

// The sum of a row's products, and what fp32 may lose of it: products and sums of at most so many terms are rounded.
struct Exact {
  double value = 0, bound = 0;
};
Exact exact_sum(const double* w, const float* x, int64_t n) {
  Exact exact;
  for (int64_t i = 0; i < n; ++i) {
    exact.value += w[i] * x[i];
    exact.bound += std::abs(w[i] * x[i]);
  }
  exact.bound *= (static_cast<double>(n) / 16 + 16) * 0x1p-24 * 4;
  return exact;
}

ops::CardMatrix load(std::span<const test::Weights> weights) {
  static WorkerTeam team(2);
  std::vector<ops::WeightSource> sources;
  for (const test::Weights& w : weights) sources.push_back(w.source());
  return ops::load_matrix(cuda::Card::at(0), sources, team);
}

// Columns of x in one piece and in several, rows that are a whole number of groups and not.
TEST_F(CardLinear, AgreesWithFp64InEveryType) {
  for (const WeightType type : kWeightTypes)
    for (const auto [rows, width, m] : {std::array<int64_t, 3>{7, 96, 1}, {70, 1100, 11}, {13, 40, 2}}) {
      const int64_t cols = whole_blocks(type, width);
      const test::Weights w = random_weights(type, rows, cols, 7);
      const ops::CardMatrix matrix = load({&w, 1});
      const std::vector<float> x = random_floats(m * cols, 3);
      float* y = poisoned<float>(static_cast<size_t>(m * rows));
      ops::linear(cuda::Card::at(0), matrix, {.x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = rows},
                  Stream::cuda(nullptr));
      for (int64_t r = 0; r < m; ++r)
        for (int64_t n = 0; n < rows; ++n) {
          const Exact exact = exact_sum(w.values.data() + n * cols, x.data() + r * cols, cols);
          ASSERT_LE(std::abs(y[r * rows + n] - exact.value), exact.bound)
              << to_string(type) << " " << rows << " x " << cols << " row " << r << " output " << n;
        }
    }
}

// A norm before, rows of several types, a product that is added: rows of y and x have gaps, which stay as they are.
TEST_F(CardLinear, NormsItsRowsAndAddsToWhatIsThere) {
  const int64_t cols = 128, m = 2, ldx = cols + 3, ldy = 80;
  const test::Weights parts[] = {random_weights(WeightType::q4_1, 33, cols, 1),
                                 random_weights(WeightType::q4_1, 7, cols, 2),
                                 random_weights(WeightType::q8_0, 35, cols, 3)};
  const ops::CardMatrix matrix = load(parts);
  ASSERT_EQ(matrix.typed_rows.size(), 2u);
  ASSERT_EQ(matrix.rows, 75);
  // Rows whose squares overflow or vanish, too.
  for (const float size : {1.f, 3e25f, 1e-30f}) {
    std::vector<float> x = random_floats(m * ldx, 3), before = random_floats(m * ldy, 4);
    const std::vector<float> norm = random_floats(cols, 5);
    for (float& value : x) value *= size;
    for (int64_t r = 0; r < m; ++r) std::fill_n(x.begin() + r * ldx + cols, 3, NAN);
    float* y = place(before);
    const float eps = size < 1.f ? 0.f : 1e-5f;
    ops::linear(
        cuda::Card::at(0), matrix,
        {.x = place(x), .rows = m, .ldx = ldx, .y = y, .ldy = ldy, .norm = place(norm), .eps = eps, .add = true},
        Stream::cuda(nullptr));
    for (int64_t r = 0; r < m; ++r) {
      double squares = 0;
      for (int64_t k = 0; k < cols; ++k) squares += double{x[r * ldx + k]} * double{x[r * ldx + k]};
      const double factor = 1 / std::sqrt(squares / cols + double{eps});
      std::vector<float> normed(cols);
      for (int64_t k = 0; k < cols; ++k)
        normed[k] = static_cast<float>(double{x[r * ldx + k]} * factor * double{norm[k]});
      int64_t n = 0;
      for (const test::Weights& part : parts)
        for (int64_t i = 0; i < part.rows; ++i, ++n) {
          const Exact exact = exact_sum(part.values.data() + i * cols, normed.data(), cols);
          ASSERT_LE(std::abs(y[r * ldy + n] - exact.value - double{before[r * ldy + n]}), 2 * exact.bound + 1e-6)
              << "size " << size << " row " << r << " output " << n;
        }
      for (; n < ldy; ++n) ASSERT_EQ(y[r * ldy + n], before[r * ldy + n]);
    }
  }
}

TEST_F(CardLinear, GatesOneHalfOfTheRowsByTheOther) {
  const int64_t cols = 64, half = 45, m = 2;
  const test::Weights parts[] = {random_weights(WeightType::q4_1, half, cols, 1, 0.05f),
                                 random_weights(WeightType::q4_1, half, cols, 2)};
  const ops::CardMatrix matrix = load(parts);
  ASSERT_TRUE(ops::can_gate(matrix));
  const std::vector<float> x = random_floats(m * cols, 3);
  for (const Gate gate : {Gate::silu, Gate::gelu_tanh}) {
    float* y = poisoned<float>(static_cast<size_t>(m * half));
    ops::linear(cuda::Card::at(0), matrix, {.x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = half, .gate = gate},
                Stream::cuda(nullptr));
    for (int64_t r = 0; r < m; ++r)
      for (int64_t n = 0; n < half; ++n) {
        const Exact a = exact_sum(parts[0].values.data() + n * cols, x.data() + r * cols, cols),
                    b = exact_sum(parts[1].values.data() + n * cols, x.data() + r * cols, cols);
        const double g = gate == Gate::silu ? a.value / (1 + std::exp(-a.value))
                                            : a.value / 2 *
                                                  (1 + std::tanh(std::sqrt(2 / std::acos(-1.)) *
                                                                 (a.value + 0.044715 * a.value * a.value * a.value)));
        ASSERT_NEAR(y[r * half + n], g * b.value,
                    (a.bound + std::abs(g) * 1e-6) * std::abs(b.value) * 2 + std::abs(g) * b.bound + 1e-7)
            << to_string(gate) << " row " << r << " output " << n;
      }
  }
}

TEST_F(CardLinear, MultipliesManyRowsByTheLibrary) {
  const ops::Blas* blas = ops::find_blas().blas;
  ASSERT_NE(blas, nullptr) << ops::find_blas().tried;
  ops::ManyRows many(*blas);
  for (const WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 64), m = 17;
    const test::Weights parts[] = {random_weights(type, 64, cols, 1), random_weights(WeightType::q8_0, 8, cols, 2)};
    const ops::CardMatrix matrix = load(parts);
    const std::vector<float> x = random_floats(m * cols, 3), before = random_floats(m * 72, 4);
    const std::vector<float> norm(static_cast<size_t>(cols), 2.f);
    float* y = place(before);
    const ops::CardProduct product{
        .x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = 72, .norm = place(norm), .add = true};
    ASSERT_TRUE(ops::ManyRows::takes(matrix, product));
    many.multiply(cuda::Card::at(0), matrix, product, true, Stream::cuda(nullptr));
    for (int64_t r = 0; r < m; ++r) {
      double squares = 0;
      for (int64_t k = 0; k < cols; ++k) squares += double{x[r * cols + k]} * double{x[r * cols + k]};
      std::vector<float> normed(static_cast<size_t>(cols));
      for (int64_t k = 0; k < cols; ++k)
        normed[static_cast<size_t>(k)] =
            static_cast<float>(2 * double{x[r * cols + k]} / std::sqrt(squares / static_cast<double>(cols)));
      for (int64_t n = 0; n < 72; ++n) {
        const test::Weights& part = parts[n < 64 ? 0 : 1];
        const Exact exact = exact_sum(part.values.data() + (n < 64 ? n : n - 64) * cols, normed.data(), cols);
        ASSERT_LE(std::abs(y[r * 72 + n] - exact.value - double{before[static_cast<size_t>(r * 72 + n)]}),
                  2 * exact.bound + 1e-6)
            << to_string(type) << " row " << r << " output " << n;
      }
    }
  }
  const ops::CardProduct few{.rows = 16}, odd{.x = place(std::vector<float>(8)) + 1, .rows = 40};
  ops::CardMatrix matrix;
  matrix.cols = 4;
  EXPECT_FALSE(ops::ManyRows::takes(matrix, few));
  EXPECT_FALSE(ops::ManyRows::takes(matrix, odd));
}

TEST_F(CardLinear, ReadsRowsOfAnEmbedding) {
  for (const WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 100), rows = 9;
    const test::Weights w = random_weights(type, rows, cols, 7);
    const ops::CardMatrix matrix = load({&w, 1});
    const std::vector<int> tokens{8, 0, 3};
    float* to = poisoned<float>(static_cast<size_t>(3 * cols));
    ops::embed(cuda::Card::at(0), matrix, place(tokens), 3, 2.f, to, Stream::cuda(nullptr));
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t k = 0; k < cols; ++k) {
        const double value = 2 * w.values[static_cast<size_t>(tokens[static_cast<size_t>(r)] * cols + k)];
        ASSERT_NEAR(to[r * cols + k], value, std::abs(value) * 1e-6 + 1e-7) << to_string(type) << " " << r << " " << k;
      }
  }
}

}  // namespace
}  // namespace weft
