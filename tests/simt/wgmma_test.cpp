// Products of warpgroups have the right values, in every form.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/simt/boxes.h"
#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_warpgroup_attend(int shape, weft::WarpgroupAttendArgs args);
extern "C" void weft_warpgroup_gather(int shape, weft::WarpgroupAttendArgs args);
extern "C" void weft_warpgroup_gemm(weft::WarpgroupGemmArgs args);
extern "C" void weft_wgmma_form(int form, weft::WgmmaFormArgs args);

namespace weft::simt {
namespace {

// Of small integers: exact in any order of sums.
struct Operand {
  std::vector<int> values;                // [mn][kFormDepth]
  std::vector<unsigned short> tile = {};  // as the tile's rows have them
};
Operand operand(std::mt19937& random, int mn, abi::Major major, bool bf16) {
  Operand made;
  for (int i = 0; i < mn * kFormDepth; ++i) made.values.push_back(static_cast<int>(random() % 17) - 8);
  for (int row = 0; row < (major == abi::Major::k ? mn : kFormDepth); ++row)
    for (int column = 0; column < (major == abi::Major::k ? kFormDepth : mn); ++column) {
      const int value = made.values[static_cast<size_t>(major == abi::Major::k ? row * kFormDepth + column
                                                                               : column * kFormDepth + row)];
      made.tile.push_back(bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(static_cast<float>(value)) >> 16)
                               : to_fp16(static_cast<float>(value)));
    }
  return made;
}

class SimtWgmma : public testing::TestWithParam<int> {};

TEST_P(SimtWgmma, IsExactOnIntegers) {
  const WgmmaForm& form = forms::kAll[GetParam()];
  std::mt19937 random(20261127);
  const Operand a = operand(random, 64, form.a, form.bf16), b = operand(random, form.n, form.b, form.bf16);
  Memory memory;
  const auto d = memory.make<float>("d", static_cast<size_t>(64 * form.n));
  const WgmmaFormArgs args{memory.make("a", a.tile).data(), memory.make("b", b.tile).data(), d.data()};
  run_in_all_orders(memory, {.threads = 128, .shared_bytes = kFormShared}, [&] { weft_wgmma_form(GetParam(), args); });
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < form.n; ++j) {
      int expected = GetParam() % 2 == 1 ? 7 - i : 0;
      for (int k = 0; k < kFormDepth; ++k)
        expected +=
            a.values[static_cast<size_t>(i * kFormDepth + k)] * b.values[static_cast<size_t>(j * kFormDepth + k)];
      ASSERT_EQ(d[static_cast<size_t>(i * form.n + j)], static_cast<float>(expected)) << i << ", " << j;
    }
}
INSTANTIATE_TEST_SUITE_P(Forms, SimtWgmma, testing::Range(0, kWgmmaForms));

struct GemmShape {
  int m, n, k;
};
class SimtWarpgroupGemm : public testing::TestWithParam<GemmShape> {};

// Against fp64: each of the steps of 16 rounds once.
TEST_P(SimtWarpgroupGemm, IsTheProduct) {
  const auto [m, n, k] = GetParam();
  std::mt19937 random(20261127);
  std::normal_distribution<float> normal;
  const auto matrix = [&](int rows) {
    std::vector<unsigned short> bits(static_cast<size_t>(rows * k));
    for (unsigned short& b : bits) b = static_cast<unsigned short>(std::bit_cast<unsigned>(normal(random)) >> 16);
    return bits;
  };
  const auto value = [](unsigned short bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<unsigned>(bits) << 16));
  };
  const auto a = matrix(m), b = matrix(n);
  Memory memory;
  const auto c = memory.make<float>("c", static_cast<size_t>(m * n));
  WarpgroupGemmArgs args = {};
  args.a.layout = layout_of(memory.make("a", a).data(), m, k, kGemmA);
  args.b.layout = layout_of(memory.make("b", b).data(), n, k, kGemmB);
  args.c = c.data(), args.m = m, args.n = n, args.k = k;
  const int ctas = (m + kGemmA.rows - 1) / kGemmA.rows * ((n + kGemmB.rows - 1) / kGemmB.rows);
  run_in_all_orders(memory, {.ctas = ctas, .threads = 160, .shared_bytes = kWarpgroupGemmShared},
                    [&] { weft_warpgroup_gemm(args); });
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double expected = 0, size = 0;
      for (int e = 0; e < k; ++e) {
        const double term = value(a[static_cast<size_t>(i * k + e)]) * value(b[static_cast<size_t>(j * k + e)]);
        expected += term, size += std::fabs(term);
      }
      const double rounding = std::ldexp(1.0, -24) * ((k + 15) / 16);
      ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], expected, rounding * size) << i << ", " << j;
    }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtWarpgroupGemm,
                         testing::Values(GemmShape{64, 128, 128}, GemmShape{64, 128, 320}, GemmShape{70, 136, 72}));

struct AttendRun {
  int shape, heads, num_queries, n;
  bool causal;
  int ctas = 2;
};
class SimtWarpgroupAttend : public testing::TestWithParam<AttendRun> {};

// Against fp64. Products of the halves are exact; probabilities are rounded to 2^-8 of themselves.
TEST_P(SimtWarpgroupAttend, IsSoftmaxOfProducts) {
  const AttendRun& test = GetParam();
  const AttendShape& shape = kAttendShapes[test.shape];
  const auto [dim_qk, dim] = std::pair(static_cast<size_t>(shape.dim_qk), static_cast<size_t>(shape.dim_vo));
  const auto [rows, n] = std::pair(static_cast<size_t>(test.num_queries), static_cast<size_t>(test.n));
  std::mt19937 random(20261127);
  std::normal_distribution<float> normal;
  const auto matrices = [&](size_t rows_of_each, size_t columns) {
    std::vector<unsigned short> bits(static_cast<size_t>(test.heads) * rows_of_each * columns);
    for (unsigned short& b : bits) b = static_cast<unsigned short>(std::bit_cast<unsigned>(normal(random)) >> 16);
    return bits;
  };
  const auto value = [](unsigned short bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<unsigned>(bits) << 16));
  };
  const auto q = matrices(rows, dim_qk), k = matrices(n, dim_qk), v = matrices(n, dim);
  Memory memory;
  const size_t states = static_cast<size_t>(test.heads) * rows;
  const auto o = memory.make<float>("o", states * dim), lse = memory.make<float>("lse", states);
  const WarpgroupAttendArgs args = args_of(
      shape, {memory.make("q", q).data(), memory.make("k", k).data(), memory.make("v", v).data(), o.data(), lse.data()},
      test.heads, test.num_queries, test.n, test.causal);
  run_in_all_orders(
      memory,
      {.ctas = test.ctas, .threads = shape.threads(), .shared_bytes = static_cast<size_t>(shape.shared_bytes())},
      [&] { weft_warpgroup_attend(test.shape, args); });
  for (size_t i = 0; i < states; ++i) {
    const size_t head = i / rows;
    const long reach = static_cast<long>(i % rows + n) - static_cast<long>(rows);
    std::vector<double> sum(dim), size(dim);
    double total = 0;
    for (size_t j = 0; j < n && (!test.causal || static_cast<long>(j) <= reach); ++j) {
      double s = 0;
      for (size_t d = 0; d < dim_qk; ++d) s += value(q[i * dim_qk + d]) * value(k[(head * n + j) * dim_qk + d]);
      const double probability = std::exp(static_cast<double>(args.sm_scale) * s);
      total += probability;
      for (size_t d = 0; d < dim; ++d) {
        const double term = probability * value(v[(head * n + j) * dim + d]);
        sum[d] += term, size[d] += std::fabs(term);
      }
    }
    if (total == 0)
      EXPECT_EQ(lse[i], -INFINITY);
    else
      EXPECT_NEAR(lse[i], std::log(total), 1e-5) << i;
    for (size_t d = 0; d < dim; ++d) {
      const double expected = total == 0 ? 0 : sum[d] / total,
                   bound = total == 0 ? 0 : (std::ldexp(1.0, -8) + 1e-5) * size[d] / total;
      ASSERT_NEAR(o[i * dim + d], expected, bound) << i << ", " << d;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtWarpgroupAttend,
                         testing::Values(AttendRun{0, 1, 128, 256, false}, AttendRun{0, 2, 200, 300, true, 1},
                                         AttendRun{0, 1, 130, 20, true}, AttendRun{1, 3, 192, 300, true},
                                         AttendRun{2, 1, 100, 260, false}, AttendRun{3, 1, 128, 270, true},
                                         AttendRun{4, 1, 100, 230, true}, AttendRun{5, 1, 100, 200, false},
                                         AttendRun{6, 2, 128, 170, true, 1}));

// Keys and values that lie in another order, and are gathered: the same bits as boxes give of those in order.
TEST(SimtWarpgroupGather, GivesTheBitsOfBoxes) {
  std::mt19937 random(20261127);
  for (const auto& [index, heads, rows, n] : {std::array{0, 2, 130, 300}, std::array{1, 1, 192, 200}}) {
    const AttendShape& shape = kAttendShapes[index];
    const auto matrices = [&](int rows_of_each, int columns) {
      std::vector<unsigned short> bits(static_cast<size_t>(heads * rows_of_each * columns));
      for (unsigned short& b : bits)
        b = static_cast<unsigned short>(std::bit_cast<unsigned>(std::normal_distribution<float>()(random)) >> 16);
      return bits;
    };
    std::vector<int> row_of_key(static_cast<size_t>(n));
    std::iota(row_of_key.begin(), row_of_key.end(), 0);
    std::shuffle(row_of_key.begin(), row_of_key.end(), random);
    const auto scattered = [&](const std::vector<unsigned short>& from, int dim) {
      std::vector<unsigned short> to(from.size());
      for (int row = 0; row < heads * n; ++row) {
        const int there = row / n * n + row_of_key[static_cast<size_t>(row % n)];
        std::copy_n(from.begin() + row * dim, dim, to.begin() + there * dim);
      }
      return to;
    };
    const auto q = matrices(rows, shape.dim_qk), k = matrices(n, shape.dim_qk), v = matrices(n, shape.dim_vo);
    Memory memory;
    const auto o = memory.make<float>("o", static_cast<size_t>(heads * rows * shape.dim_vo)),
               lse = memory.make<float>("lse", static_cast<size_t>(heads * rows));
    WarpgroupAttendArgs args = args_of(
        shape,
        {memory.make("q", q).data(), memory.make("k", k).data(), memory.make("v", v).data(), o.data(), lse.data()},
        heads, rows, n, true);
    args.k_rows = memory.make("k rows", scattered(k, shape.dim_qk)).data();
    args.v_rows = memory.make("v rows", scattered(v, shape.dim_vo)).data();
    args.row_of_key = memory.make("row of key", row_of_key).data();
    const Launch launch{
        .ctas = 2, .threads = shape.threads(), .shared_bytes = static_cast<size_t>(shape.shared_bytes())};
    simt::run(memory, launch, [&, of = index] { weft_warpgroup_attend(of, args); });
    const std::vector<float> expected(o.begin(), o.end());
    std::fill(o.begin(), o.end(), 0.f);
    run_in_all_orders(memory, launch, [&, of = index] { weft_warpgroup_gather(of, args); });
    EXPECT_EQ(std::memcmp(o.data(), expected.data(), expected.size() * sizeof(float)), 0) << index;
  }
}

}  // namespace
}  // namespace weft::simt
