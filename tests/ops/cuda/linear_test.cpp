// Products with weights on a card, in the host machine, against fp64.
#include "ops/cuda/linear.h"

#include <cmath>
#include <limits>
#include <random>

#include "ops/cuda/kernels/args.h"
#include "ops/cuda/many_rows.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/ops/weights.h"

namespace weft {
namespace {

using test::kWeightTypes;
using test::random_floats;
using test::random_weights;
using test::whole_blocks;

class CardLinear : public testing::HostCard {
 protected:
  CardLinear() : HostCard(true) {}
};

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

WorkerTeam& team() {
  static WorkerTeam two(2);
  return two;
}
std::vector<ops::WeightSource> sources_of(std::span<const test::Weights> weights) {
  std::vector<ops::WeightSource> sources;
  for (const test::Weights& w : weights) sources.push_back(w.source());
  return sources;
}
// As the card keeps them: in tiles where their types have them.
ops::CardMatrix load(std::span<const test::Weights> weights) {
  return ops::load_matrix(Device::cuda(0), sources_of(weights), team());
}
ops::CardMatrix load_planes(std::span<const test::Weights> weights) {
  const std::vector<ops::WeightSource> sources = sources_of(weights);
  return ops::load_matrix(ops::form_planes(Device::cuda(0), "weights", sources), sources, team());
}

// Columns of x in one piece and in several, rows that are a whole number of groups and not.
TEST_F(CardLinear, AgreesWithFp64InEveryType) {
  for (const WeightType type : kWeightTypes)
    for (const auto [rows, width, m] : {std::array<int64_t, 3>{7, 96, 1}, {70, 1100, 11}, {13, 40, 2}}) {
      const int64_t cols = whole_blocks(type, width);
      const test::Weights w = random_weights(type, rows, cols, 7);
      const ops::CardMatrix matrix = load_planes({&w, 1});
      const std::vector<float> x = random_floats(m * cols, 3);
      float* y = poisoned<float>(static_cast<size_t>(m * rows));
      ops::linear(matrix, {.x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = rows}, Stream::cuda(nullptr));
      for (int64_t r = 0; r < m; ++r)
        for (int64_t n = 0; n < rows; ++n) {
          const Exact exact = exact_sum(w.values.data() + n * cols, x.data() + r * cols, cols);
          ASSERT_LE(std::abs(y[r * rows + n] - exact.value), exact.bound)
              << to_string(type) << " " << rows << " x " << cols << " row " << r << " output " << n;
        }
    }
}

// More columns than shared memory holds of as many rows: pieces of weights that are on their way go from one part to
// the next, and squares are of all parts.
TEST_F(CardLinear, AgreesWithFp64WhereSharedMemoryHoldsARowInParts) {
  testing::watch_launch = [](const std::string&, const cuda::Grid& grid, const void*) {
    EXPECT_LE(grid.shared_bytes, 64 << 10);
  };
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::q4_0, WeightType::q6_k})
    for (const auto [rows, width, m] : {std::array<int64_t, 3>{60, 2100, 8}, {60, 2850, 5}, {27, 7800, 2}}) {
      const int64_t cols = whole_blocks(type, width);
      const test::Weights w = random_weights(type, rows, cols, 7);
      const ops::CardMatrix matrix = load_planes({&w, 1});
      const std::vector<float> x = random_floats(m * cols, 3), norm(static_cast<size_t>(cols), 2.f);
      for (const bool norms : {false, true}) {
        float* y = poisoned<float>(static_cast<size_t>(m * rows));
        ops::linear(matrix,
                    {.x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = rows, .norm = norms ? place(norm) : nullptr},
                    Stream::cuda(nullptr));
        for (int64_t r = 0; r < m; ++r) {
          double squares = 0;
          for (int64_t k = 0; k < cols; ++k) squares += double{x[r * cols + k]} * double{x[r * cols + k]};
          const double factor = norms ? 2 / std::sqrt(squares / static_cast<double>(cols)) : 1;
          for (int64_t n = 0; n < rows; ++n) {
            const Exact exact = exact_sum(w.values.data() + n * cols, x.data() + r * cols, cols);
            ASSERT_LE(std::abs(y[r * rows + n] - factor * exact.value), 2 * factor * exact.bound)
                << to_string(type) << " " << rows << " x " << cols << " row " << r << " output " << n;
          }
        }
      }
    }
}

// Rows that 16 bytes at a time do not serve, each for a reason of its own, and some that they do; what lies between
// them is NaN. The machine has no alignment of loads: which of them a kernel takes is what it is told.
TEST_F(CardLinear, ReadsRowsThatLieAnywhere) {
  bool is_aligned = false;
  testing::watch_launch = [&](const std::string&, const cuda::Grid&, const void* args) {
    is_aligned = static_cast<const ops::LinearArgs*>(args)->is_aligned;
  };
  for (const auto [first, first_of_norm, cols, gap] :
       {std::array<int64_t, 4>{1, 0, 64, 0}, {0, 1, 64, 0}, {0, 0, 64, 3}, {0, 0, 61, 3}, {4, 4, 64, 4}}) {
    constexpr int64_t kRows = 13, kM = 2;
    const int64_t ldx = cols + gap;
    const test::Weights w = random_weights(WeightType::f32, kRows, cols, 7);
    const ops::CardMatrix matrix = load({&w, 1});
    std::vector<float> x = random_floats(first + kM * ldx, 3), norm = random_floats(first_of_norm + cols, 5);
    for (int64_t r = 0; r < kM; ++r)
      std::fill_n(x.begin() + first + r * ldx + cols, gap, std::numeric_limits<float>::quiet_NaN());
    float* y = poisoned<float>(kM * kRows);
    ops::linear(
        matrix,
        {.x = place(x) + first, .rows = kM, .ldx = ldx, .y = y, .ldy = kRows, .norm = place(norm) + first_of_norm},
        Stream::cuda(nullptr));
    EXPECT_EQ(is_aligned, first == 4) << first << " " << first_of_norm << " " << cols << " " << gap;
    for (int64_t r = 0; r < kM; ++r) {
      const float* const row = x.data() + first + r * ldx;
      double squares = 0;
      for (int64_t k = 0; k < cols; ++k) squares += double{row[k]} * double{row[k]};
      std::vector<float> normed;
      for (int64_t k = 0; k < cols; ++k)
        normed.push_back(static_cast<float>(double{row[k]} * double{norm[static_cast<size_t>(first_of_norm + k)]} /
                                            std::sqrt(squares / static_cast<double>(cols))));
      for (int64_t n = 0; n < kRows; ++n) {
        const Exact exact = exact_sum(w.values.data() + n * cols, normed.data(), cols);
        ASSERT_LE(std::abs(y[r * kRows + n] - exact.value), 2 * exact.bound + 1e-6)
            << first << " " << first_of_norm << " " << cols << " row " << r << " output " << n;
      }
    }
  }
}

// Kernels multiply whole pieces: what fills the last one is zero, whatever was in its memory.
TEST_F(CardLinear, FillsTheLastPieceOfARowWithZeros) {
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::bf16})
    for (const int64_t cols : {1, 7, 8, 13}) {
      const auto bytes = static_cast<size_t>(ops::file_row_bytes(type, cols)),
                 whole = static_cast<size_t>(ops::plane_bytes(type, cols).quants);
      const std::vector<char> row(bytes, 0x11);
      std::vector<char> packed(whole + 1, 0x22);
      ops::pack_row(type, row.data(), cols, {packed.data(), nullptr, nullptr, nullptr});
      ASSERT_EQ(whole % 16, 0u);
      for (size_t i = 0; i <= whole; ++i)
        ASSERT_EQ(packed[i], i < bytes ? 0x11 : i < whole ? 0 : 0x22) << to_string(type) << " " << cols << " " << i;
    }
}

// A norm before, rows of several types, a product that is added: rows of y and x have gaps, which stay as they are.
TEST_F(CardLinear, NormsItsRowsAndAddsToWhatIsThere) {
  const int64_t cols = 128, m = 2, ldx = cols + 3, ldy = 80;
  const test::Weights parts[] = {random_weights(WeightType::q4_1, 33, cols, 1),
                                 random_weights(WeightType::q4_1, 7, cols, 2),
                                 random_weights(WeightType::q8_0, 35, cols, 3)};
  for (const bool tiled : {false, true}) {
    const ops::CardMatrix matrix = tiled ? load(parts) : load_planes(parts);
    ASSERT_EQ(matrix.is_tiled(), tiled);
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
      ops::linear(matrix,
                  {.x = place(x),
                   .rows = m,
                   .ldx = ldx,
                   .y = y,
                   .ldy = ldy,
                   .norm = place(norm),
                   .eps = eps,
                   .add = true,
                   .exact = true},
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
}

TEST_F(CardLinear, GatesOneHalfOfTheRowsByTheOther) {
  const int64_t cols = 64, m = 2;
  for (const int64_t half : {45, 48}) {  // in planes; in whole bands of tiles
    const test::Weights parts[] = {random_weights(WeightType::q4_1, half, cols, 1, 0.05f),
                                   random_weights(WeightType::q4_1, half, cols, 2)};
    ASSERT_EQ(ops::can_gate(load(parts)), half == 48);
    const ops::CardMatrix matrix = half == 48 ? load(parts) : load_planes(parts);
    ASSERT_TRUE(ops::can_gate(matrix));
    const std::vector<float> x = random_floats(m * cols, 3);
    for (const Gate gate : {Gate::silu, Gate::gelu_tanh}) {
      float* y = poisoned<float>(static_cast<size_t>(m * half));
      ops::linear(matrix, {.x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = half, .exact = true, .gate = gate},
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
}

TEST_F(CardLinear, MultipliesManyRowsByTheLibrary) {
  const ops::Blas* blas = ops::find_blas().blas;
  ASSERT_NE(blas, nullptr) << ops::find_blas().tried;
  testing::host_in_all_orders = false;  // the library's memory is large
  ops::ManyRows many(*blas);
  for (const WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 64), m = 17;
    const test::Weights parts[] = {random_weights(type, 64, cols, 1), random_weights(WeightType::q8_0, 8, cols, 2)};
    const ops::CardMatrix matrix = load(parts);
    const std::vector<float> x = random_floats(m * cols, 3), before = random_floats(m * 72, 4);
    const std::vector<float> norm(static_cast<size_t>(cols), 2.f);
    float* y = place(before);
    const ops::CardProduct product{
        .x = place(x), .rows = m, .ldx = cols, .y = y, .ldy = 72, .norm = place(norm), .add = true, .exact = true};
    ASSERT_TRUE(ops::ManyRows::takes(matrix, product));
    many.multiply(matrix, product, Stream::cuda(nullptr));
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

// At any addresses: the library is told how far they are aligned.
TEST_F(CardLinear, MultipliesMatricesHoweverTheyLie) {
  constexpr int64_t kRows = 5, kInner = 9, kCols = 7, kGap = 1;
  for (const bool a_by_columns : {false, true})
    for (const bool b_by_columns : {false, true})
      for (const bool add : {false, true}) {
        const auto matrix_of = [](float* data, int64_t rows, int64_t cols, bool by_columns) {
          const int64_t ld = (by_columns ? rows : cols) + kGap;
          const int64_t shape[] = {rows, cols}, strides[] = {by_columns ? 1 : ld, by_columns ? ld : 1};
          return TensorView(data, DType::fp32, shape, strides, Device::cuda(0));
        };
        const auto at = [](const TensorView& x, int64_t i, int64_t j) {
          return double{x.as<float>()[i * x.stride(0) + j * x.stride(1)]};
        };
        const std::vector<float> before = random_floats(100, 3);
        const TensorView a = matrix_of(place(random_floats(100, 1)) + 1, kRows, kInner, a_by_columns),
                         b = matrix_of(place(random_floats(100, 2)) + 2, kInner, kCols, b_by_columns),
                         c = matrix_of(place(before) + 1, kRows, kCols, false);
        matmul(a, b, c, {.add = add});
        for (int64_t i = 0; i < kRows; ++i)
          for (int64_t j = 0; j < kCols; ++j) {
            double sum = add ? double{before[static_cast<size_t>(1 + i * c.stride(0) + j)]} : 0.;
            for (int64_t k = 0; k < kInner; ++k) sum += at(a, i, k) * at(b, k, j);
            ASSERT_NEAR(at(c, i, j), sum, 1e-4) << i << ", " << j << (a_by_columns ? ", a^T" : "")
                                                << (b_by_columns ? ", b^T" : "") << (add ? ", added" : "");
          }
      }
}

TEST_F(CardLinear, GivesTheLibraryTheWorkspaceOfAProduct) {
  const Device card = Device::cuda(0);
  const TensorView a(place(random_floats(6, 1)), DType::fp32, {2, 3}, card),
      b(place(random_floats(12, 2)), DType::fp32, {3, 4}, card), c(poisoned<float>(8), DType::fp32, {2, 4}, card);
  const Workspace memory(card, 4096), elsewhere(Device::cpu(), 4096);
  matmul(a, b, c, {.workspace = &memory});
  EXPECT_EQ(*static_cast<const size_t*>(memory.data()), 4096u);  // what the library that is none leaves there
  EXPECT_THROW(matmul(a, b, c, {.workspace = &elsewhere}), Error);
}

TEST_F(CardLinear, ReadsRowsOfAnEmbedding) {
  for (const WeightType type : kWeightTypes) {
    const int64_t cols = whole_blocks(type, 100), rows = 9;
    const test::Weights w = random_weights(type, rows, cols, 7);
    const std::vector<int> tokens{8, 0, 3};
    for (const bool tiled : {false, true}) {
      const ops::CardMatrix matrix = tiled ? load({&w, 1}) : load_planes({&w, 1});
      float* to = poisoned<float>(static_cast<size_t>(3 * cols));
      ops::embed(matrix, place(tokens), 3, 2.f, to, Stream::cuda(nullptr));
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t k = 0; k < cols; ++k) {
          const double value = 2 * w.values[static_cast<size_t>(tokens[static_cast<size_t>(r)] * cols + k)];
          ASSERT_NEAR(to[r * cols + k], value, std::abs(value) * 1e-6 + 1e-7)
              << to_string(type) << " " << r << " " << k;
        }
    }
  }
}

}  // namespace
}  // namespace weft
