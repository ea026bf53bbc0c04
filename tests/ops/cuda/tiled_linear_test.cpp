// Products with weights in tiles, in the host machine, against fp64.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "ops/cuda/kernels/args.h"
#include "ops/cuda/linear.h"
#include "ops/cuda/tiled_many.h"
#include "ops/cuda/tiled_weights.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/ops/weights.h"

namespace weft {
namespace {

using test::random_floats;
using test::random_weights;
using test::whole_blocks;

constexpr WeightType kTypes[] = {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1,
                                 WeightType::q4_g128};

class TiledLinear : public testing::HostCard {
 protected:
  TiledLinear() : HostCard(true) {}
  ~TiledLinear() override { testing::host_multiprocessors = 1; }

  // A matrix in so many panels.
  struct Matrix {
    Matrix(WeightType type, int64_t rows, int64_t width, int64_t panels = 1)
        : weights(random_weights(type, rows, whole_blocks(type, width), 7)) {
      static WorkerTeam team(2);
      const std::vector<ops::WeightSource> sources{weights.source()};
      const ops::TypedRows part{type, rows};
      ops::TiledMatrix tiles = ops::tile("weights", weights.cols, {&part, 1}, 64);
      EXPECT_EQ(tiles.band_tiles % panels, 0);
      tiles.num_panels = panels;
      card = ops::load_matrix(ops::form_matrix(Device::cuda(0), "weights", sources, tiles), sources, team);
    }
    test::Weights weights;
    ops::CardMatrix card;
  };
  struct How {
    bool exact = false, norms = false, adds = false;
    int64_t gap = 0;                       // between rows of x and of y; 1: at odd addresses too
    bool many = false, invariant = false;  // by the kernel for many rows
  };

  std::vector<float> run(const Matrix& matrix, int64_t m, How how, int64_t first_row = 0) {
    const int64_t cols = matrix.weights.cols, rows = matrix.weights.rows, ldx = cols + how.gap, ldy = rows + how.gap;
    std::vector<float> x = x_of(cols, first_row, m, how);
    std::vector<float> before(static_cast<size_t>(m * ldy), std::numeric_limits<float>::quiet_NaN());
    if (how.adds)
      for (int64_t r = 0; r < m; ++r)
        for (int64_t n = 0; n < rows; ++n) before[static_cast<size_t>(r * ldy + n)] = before_of(r, n);
    const std::vector<float> norm = random_floats(cols, 5);
    const int64_t odd = how.gap == 1 ? 1 : 0;
    x.insert(x.begin(), static_cast<size_t>(odd), 0.f);
    float* y = place(before);
    const ops::CardProduct product{.x = place(x) + odd,
                                   .rows = m,
                                   .ldx = ldx,
                                   .y = y,
                                   .ldy = ldy,
                                   .norm = how.norms ? place(norm) : nullptr,
                                   .eps = 1e-5f,
                                   .add = how.adds,
                                   .exact = how.exact,
                                   .invariant = how.invariant};
    if (how.many)
      many_.multiply(matrix.card, product, Stream::cuda(nullptr));
    else
      ops::linear(matrix.card, product, Stream::cuda(nullptr));
    std::vector<float> made;
    for (int64_t r = 0; r < m; ++r) {
      made.insert(made.end(), y + r * ldy, y + r * ldy + rows);
      for (int64_t n = rows; n < ldy; ++n) EXPECT_TRUE(std::isnan(y[r * ldy + n])) << "beyond the row";
    }
    return made;
  }
  // What x may lose: 17 bits of it count, or all; sums in fp32.
  void check(const Matrix& matrix, int64_t m, How how) {
    const int64_t cols = matrix.weights.cols, rows = matrix.weights.rows, ldx = cols + how.gap;
    const std::vector<float> y = run(matrix, m, how), x = x_of(cols, 0, m, how), norm = random_floats(cols, 5);
    for (int64_t r = 0; r < m; ++r) {
      double squares = 0;
      for (int64_t k = 0; k < cols; ++k) squares += std::pow(double{x[static_cast<size_t>(r * ldx + k)]}, 2);
      const double factor = how.norms ? 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5) : 1;
      for (int64_t n = 0; n < rows; ++n) {
        double sum = 0, sizes = 0;
        for (int64_t k = 0; k < cols; ++k) {
          const double product = double{x[static_cast<size_t>(r * ldx + k)]} * factor *
                                 (how.norms ? double{norm[static_cast<size_t>(k)]} : 1.) *
                                 matrix.weights.values[static_cast<size_t>(n * cols + k)];
          sum += product, sizes += std::abs(product);
        }
        // Integers and a least value cancel, and are rounded apart.
        const double more = matrix.weights.type == WeightType::q4_1 ? 8 : 1;
        const double bound =
            sizes * ((how.exact ? 0 : 0x1p-17) + (static_cast<double>(cols) / 16 + 16) * 0x1p-22) * more;
        const double before = how.adds ? double{before_of(r, n)} : 0;
        ASSERT_LE(std::abs(y[static_cast<size_t>(r * rows + n)] - sum - before), bound + std::abs(before) * 1e-6 + 1e-9)
            << to_string(matrix.weights.type) << " " << rows << " x " << cols << ", " << m << " rows, exact "
            << how.exact << ", row " << r << " output " << n;
      }
    }
  }

 private:
  ops::TiledManyRows many_;

  static float before_of(int64_t row, int64_t output) { return static_cast<float>((row * 7 + output * 3) % 5) - 2.f; }
  // Rows from first_row on of the same ones; what lies between them is NaN.
  static std::vector<float> x_of(int64_t cols, int64_t first_row, int64_t m, How how) {
    const int64_t ldx = cols + how.gap;
    std::vector<float> x(static_cast<size_t>(m * ldx), std::numeric_limits<float>::quiet_NaN());
    for (int64_t r = 0; r < m; ++r) {
      const std::vector<float> row = random_floats(cols, static_cast<uint64_t>(100 + first_row + r));
      std::copy(row.begin(), row.end(), x.begin() + r * ldx);
    }
    return x;
  }
};

// Rows and columns that fill their bands and tiles, and those that do not; up to 17 rows of x.
TEST_F(TiledLinear, AgreesWithFp64InEveryType) {
  for (const WeightType type : kTypes) {
    check(Matrix(type, 41, 96), 1, {});
    check(Matrix(type, 33, 608), 3, {.norms = true});
    check(Matrix(type, 16, 40), 17, {.adds = true});
    check(Matrix(type, 70, 1100), 2, {.exact = true, .norms = true, .adds = true});
    check(Matrix(type, 70, 1100), 9, {.exact = true});
  }
}

TEST_F(TiledLinear, AgreesWithFp64OnRandomShapes) {
  std::mt19937 random(11);
  const auto any = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  testing::host_in_all_orders = false;
  for (int i = 0; i < 40; ++i) {
    const WeightType type = kTypes[i % 5];
    testing::host_multiprocessors = static_cast<int>(any(1, 3));
    // Types of whole blocks of 32 or 128 columns, and bf16 of any.
    check(Matrix(type, any(1, 150), any(1, 700)), any(1, 17),
          {.exact = false, .norms = any(0, 1) == 1, .adds = any(0, 1) == 1, .gap = any(0, 4)});
  }
}

TEST_F(TiledLinear, AgreesWithFp64OnManyRows) {
  testing::host_in_all_orders = false;
  for (const WeightType type : kTypes)
    for (const int64_t m : {64, 200}) check(Matrix(type, 21, 160), m, {.norms = true});
}

// Warps are dealt to panels, evenly or not; bands of many bytes have 16 warps.
TEST_F(TiledLinear, ReadsPanels) {
  testing::host_in_all_orders = false;
  for (const WeightType type : kTypes) {
    check(Matrix(type, 50, 768, 2), 1, {.norms = true});
    check(Matrix(type, 50, 768, 3), 2, {});
    check(Matrix(type, 20, 1280, 10), 1, {});
  }
  check(Matrix(WeightType::bf16, 40, 3456, 2), 4, {.norms = true});
}

// More columns of x than shared memory holds: each warp's come in parts, for each set of bands anew.
TEST_F(TiledLinear, AgreesWithFp64WhereSharedMemoryHoldsXInParts) {
  testing::host_in_all_orders = false;
  testing::watch_launch = [](const std::string&, const cuda::Grid& grid, const void* args) {
    EXPECT_LE(grid.shared_bytes, 224 << 10);
    EXPECT_LT(static_cast<const ops::TiledLinearArgs*>(args)->chunk * 16, 9000 / 8);
  };
  for (const WeightType type : {WeightType::bf16, WeightType::q4_0, WeightType::q4_g128})
    check(Matrix(type, 70, 9000), 8, {.norms = true, .adds = true});
  check(Matrix(WeightType::bf16, 70, 9000), 5, {.exact = true, .norms = true});

  // Two bands at a time or one, in parts or not.
  testing::watch_launch = nullptr;
  const Matrix matrix(WeightType::q4_0, 70, 9000);
  const std::vector<float> eight = run(matrix, 8, {.norms = true}), one = run(matrix, 1, {.norms = true}, 3);
  for (size_t i = 0; i < 70; ++i) ASSERT_EQ(one[i], eight[3 * 70 + i]) << i;
}

// Whichever kernel multiplies it.
TEST_F(TiledLinear, GivesARowTheSameBitsBesideAnyOthers) {
  testing::host_in_all_orders = false;
  for (const WeightType type : kTypes)
    for (const bool exact : {false, true}) {
      const Matrix matrix(type, 41, 608);
      const How how{.exact = exact, .norms = true};
      const std::vector<float> all = run(matrix, 8, how);
      for (const int64_t m : {1, 2, 4})
        for (int64_t first = 0; first + m <= 8; first += 3) {
          const std::vector<float> some = run(matrix, m, how, first);
          for (size_t i = 0; i < some.size(); ++i)
            ASSERT_EQ(some[i], all[static_cast<size_t>(first * 41) + i]) << to_string(type) << ", " << m << " rows";
        }
    }
}

// Rows and outputs that fill what a CTA has, and those that do not; columns in one split and in several.
TEST_F(TiledLinear, OfManyRowsAgreesWithFp64) {
  testing::host_in_all_orders = false;
  std::vector<int64_t> splits;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void* args) {
    if (symbol.starts_with("weft_tiled_many")) splits.push_back(static_cast<const ops::TiledManyArgs*>(args)->splits);
  };
  for (const WeightType type : kTypes) {
    testing::host_multiprocessors = 1;
    check(Matrix(type, 150, 200), 9, {.many = true});
    check(Matrix(type, 128, 256), 64, {.adds = true, .many = true});
    check(Matrix(type, 41, 100), 200, {.norms = true, .gap = 1, .many = true});
    testing::host_multiprocessors = 3;
    check(Matrix(type, 41, 1536, 2), 17, {.norms = true, .adds = true, .gap = 3, .many = true});
    check(Matrix(type, 20, 1024), 33, {.exact = true, .norms = true, .many = true});
  }
  for (const int64_t count : {1, 2, 3, 6}) EXPECT_GT(std::ranges::count(splits, count), 0) << count;
}

TEST_F(TiledLinear, OfManyRowsGivesARowTheSameBitsInAnyNumberWhereThatIsAsked) {
  testing::host_in_all_orders = false;
  testing::host_multiprocessors = 3;
  for (const WeightType type : kTypes) {
    const Matrix matrix(type, 41, 1024);
    const How how{.norms = true, .many = true, .invariant = true};
    const std::vector<float> all = run(matrix, 150, how);
    for (const auto& [first, m] : {std::pair<int64_t, int64_t>{0, 1}, {70, 3}, {64, 64}, {140, 10}}) {
      const std::vector<float> some = run(matrix, m, how, first);
      for (size_t i = 0; i < some.size(); ++i)
        ASSERT_EQ(some[i], all[static_cast<size_t>(first * 41) + i]) << to_string(type) << ", " << m << " rows";
    }
  }
}

// What CTAs hand to each other and to the next kernel, in any order of threads.
TEST_F(TiledLinear, OfManyRowsIsTheSameInEveryOrderOfThreads) {
  testing::host_multiprocessors = 2;
  for (const WeightType type : {WeightType::bf16, WeightType::q4_1, WeightType::q4_g128})
    check(Matrix(type, 20, 1024), 10, {.norms = true, .many = true});
}

TEST_F(TiledLinear, OfManyRowsTakesMoreThanTheKernelsOfFew) {
  const Matrix tiled(WeightType::q4_0, 16, 64);
  EXPECT_FALSE(ops::TiledManyRows::takes(tiled.card, {.rows = 8}));
  EXPECT_TRUE(ops::TiledManyRows::takes(tiled.card, {.rows = 9}));
  EXPECT_FALSE(ops::TiledManyRows::takes(tiled.card, {.rows = 9, .gate = Gate::silu}));
  EXPECT_FALSE(ops::TiledManyRows::takes(ops::CardMatrix{}, {.rows = 9}));  // in planes
}

// Numbers of x whose parts leave fp32's range, and some that are none.
TEST_F(TiledLinear, KeepsWhatIsNotFiniteToItsRow) {
  const Matrix matrix(WeightType::bf16, 16, 64);
  std::vector<float> x(3 * 64, 1.f);
  x[5] = std::numeric_limits<float>::infinity();
  x[64 + 9] = 3e38f;
  float* y = poisoned<float>(3 * 16);
  ops::linear(matrix.card, {.x = place(x), .rows = 3, .ldx = 64, .y = y, .ldy = 16}, Stream::cuda(nullptr));
  for (int64_t n = 0; n < 16; ++n) {
    double sum = 0;
    for (int64_t k = 0; k < 64; ++k) sum += matrix.weights.values[static_cast<size_t>(n * 64 + k)];
    EXPECT_FALSE(std::isfinite(y[n])) << n;
    EXPECT_TRUE(std::isfinite(y[16 + n])) << n;
    EXPECT_NEAR(y[32 + n], sum, 1e-4) << n;
  }
}

// In planes they would be read by kernels of fp32.
TEST_F(TiledLinear, IsWhereTypesHaveTiles) {
  static WorkerTeam team(1);
  const auto is_tiled = [&](std::initializer_list<WeightType> types) {
    std::vector<test::Weights> parts;
    for (const WeightType type : types) parts.push_back(random_weights(type, 8, 256, 1));
    std::vector<ops::WeightSource> sources;
    for (const test::Weights& part : parts) sources.push_back(part.source());
    return ops::load_matrix(Device::cuda(0), sources, team).is_tiled();
  };
  for (const WeightType type : kTypes) EXPECT_TRUE(is_tiled({type}));
  EXPECT_TRUE(is_tiled({WeightType::q4_0, WeightType::bf16, WeightType::q4_g128}));
  for (const WeightType type : {WeightType::f32, WeightType::f16, WeightType::q5_0, WeightType::q4_k, WeightType::q6_k})
    EXPECT_FALSE(is_tiled({WeightType::q4_0, type}));
}

}  // namespace
}  // namespace weft
