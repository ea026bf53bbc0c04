// merge_states and pack_mask.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "problem.h"
#include "weft/attention.h"

namespace weft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct States {
  int n, rows, heads, dim;
  DType dtype;
  std::vector<char> o;
  std::vector<float> lse;
  TensorView o_view() { return {o.data(), dtype, {n, rows, heads, dim}}; }
  TensorView lse_view() { return {lse.data(), DType::fp32, {n, rows, heads}}; }
};

States random_states(int n, int rows, int heads, int dim, DType dtype, unsigned seed) {
  States s{n, rows, heads, dim, dtype, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t states = int64_t{n} * rows * heads;
  s.o.resize(static_cast<size_t>(states * dim * 4));
  for (int64_t i = 0; i < states * dim; ++i) testing::put(s.o.data(), dtype, i, normal(random));
  for (int64_t i = 0; i < states; ++i) s.lse.push_back(5 * normal(random));
  return s;
}

void expect_merged(States& s, DType out_dtype, bool by_indptr) {
  std::vector<float> out_memory(static_cast<size_t>(s.rows * s.heads * s.dim), NAN),
      lse_out(static_cast<size_t>(s.rows * s.heads), NAN);
  const TensorView out(out_memory.data(), out_dtype, {s.rows, s.heads, s.dim}),
      out_lse(lse_out.data(), DType::fp32, {s.rows, s.heads});
  if (by_indptr) {
    // State i of row r stands at r * n + i: the same numbers in another order.
    std::vector<int32_t> indptr;
    for (int r = 0; r <= s.rows; ++r) indptr.push_back(r * s.n);
    std::vector<char> o_list(s.o.size());
    std::vector<float> lse_list;
    int64_t at = 0;
    for (int r = 0; r < s.rows; ++r)
      for (int i = 0; i < s.n; ++i)
        for (int h = 0; h < s.heads; ++h) {
          lse_list.push_back(s.lse[static_cast<size_t>((i * s.rows + r) * s.heads + h)]);
          for (int d = 0; d < s.dim; ++d)
            testing::put(
                o_list.data(), s.dtype, at++,
                testing::get(s.o.data(), s.dtype, (int64_t{i} * s.rows * s.heads + r * s.heads + h) * s.dim + d));
        }
    merge_states(TensorView(o_list.data(), s.dtype, {s.rows * s.n, s.heads, s.dim}),
                 TensorView(lse_list.data(), DType::fp32, {s.rows * s.n, s.heads}), indptr, out, out_lse);
  } else {
    merge_states(s.o_view(), s.lse_view(), out, out_lse);
  }
  const double unit = out_dtype == DType::fp32 ? 1e-6 : out_dtype == DType::fp16 ? 6e-4 : 5e-3;
  for (int r = 0; r < s.rows; ++r)
    for (int h = 0; h < s.heads; ++h) {
      double max = -INFINITY, sum = 0;
      const auto lse = [&](int i) {
        return static_cast<double>(s.lse[static_cast<size_t>((i * s.rows + r) * s.heads + h)]);
      };
      for (int i = 0; i < s.n; ++i) max = std::max(max, lse(i));
      for (int i = 0; i < s.n; ++i) sum += max == -INFINITY ? 0 : std::exp(lse(i) - max);
      const double expected_lse = max == -INFINITY ? -INFINITY : max + std::log(sum);
      const double got_lse = lse_out[static_cast<size_t>(r * s.heads + h)];
      EXPECT_TRUE(got_lse == expected_lse || std::abs(got_lse - expected_lse) < 1e-5) << got_lse << " " << expected_lse;
      for (int d = 0; d < s.dim; ++d) {
        double expected = 0, scale = 0;
        for (int i = 0; i < s.n; ++i) {
          if (lse(i) == -INFINITY) continue;
          const double x = testing::get(s.o.data(), s.dtype, ((int64_t{i} * s.rows + r) * s.heads + h) * s.dim + d);
          expected += std::exp(lse(i) - max) / sum * x;
          scale += std::exp(lse(i) - max) / sum * std::abs(x);
        }
        const double got = testing::get(out_memory.data(), out_dtype, (int64_t{r} * s.heads + h) * s.dim + d);
        EXPECT_NEAR(got, expected, unit * scale + 1e-7);
      }
    }
}

TEST(MergeStates, WeighsStatesByTheirLse) {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const bool by_indptr : {false, true}) {
      States s = random_states(4, 5, 3, 72, dtype, 3);
      expect_merged(s, dtype, by_indptr);
      expect_merged(s, DType::fp32, by_indptr);
    }
}

TEST(MergeStates, SharesLargeMergesAmongWorkers) {
  States s = random_states(3, 300, 4, 64, DType::fp32, 4);
  expect_merged(s, DType::fp32, false);
  expect_merged(s, DType::fp32, true);
}

TEST(MergeStates, EmptyStatesAreTheIdentityWhateverTheyHold) {
  States s = random_states(3, 2, 2, 8, DType::fp32, 5);
  for (int i : {0, 2})
    for (int k = 0; k < 4; ++k) {
      s.lse[static_cast<size_t>(i * 4 + k)] = -kInf;
      for (int d = 0; d < 8; ++d) testing::put(s.o.data(), DType::fp32, (i * 4 + k) * 8 + d, NAN);
    }
  s.lse[4] = -kInf;  // row 0, head 0: nothing but empty states
  for (int d = 0; d < 8; ++d) testing::put(s.o.data(), DType::fp32, 4 * 8 + d, NAN);
  expect_merged(s, DType::fp32, false);
  std::vector<float> out(32, NAN), lse_out(4, NAN);
  merge_states(s.o_view(), s.lse_view(), TensorView(out.data(), DType::fp32, {2, 2, 8}),
               TensorView(lse_out.data(), DType::fp32, {2, 2}));
  EXPECT_EQ(lse_out[0], -kInf);
  for (int d = 0; d < 8; ++d) EXPECT_EQ(out[static_cast<size_t>(d)], 0.f);
  for (int k = 1; k < 4; ++k) EXPECT_EQ(lse_out[static_cast<size_t>(k)], s.lse[static_cast<size_t>(4 + k)]);
}

TEST(MergeStates, ARowWithoutStatesIsEmpty) {
  std::vector<float> o(8, 1.f), lse(1, 0.f), out(16, NAN), lse_out(2, NAN);
  const std::vector<int32_t> indptr = {0, 0, 1};
  merge_states(TensorView(o.data(), DType::fp32, {1, 1, 8}), TensorView(lse.data(), DType::fp32, {1, 1}), indptr,
               TensorView(out.data(), DType::fp32, {2, 1, 8}), TensorView(lse_out.data(), DType::fp32, {2, 1}));
  EXPECT_EQ(lse_out, (std::vector<float>{-kInf, 0.f}));
  EXPECT_EQ(out[0], 0.f);
  EXPECT_EQ(out[8], 1.f);
}

TEST(PackMask, StartsEachRequestOnAByteAndPadsWords) {
  const std::vector<uint8_t> mask = {1, 0, 0, 0, 0, 0, 0, 0, 7, /* next */ 0, 1, 1};
  const std::vector<int64_t> indptr = {0, 9, 9, 12};
  std::vector<int64_t> bytes;
  const std::vector<uint8_t> packed = pack_mask(mask, indptr, bytes);
  EXPECT_EQ(bytes, (std::vector<int64_t>{0, 2, 2, 3}));
  EXPECT_EQ(packed, (std::vector<uint8_t>{1, 1, 6, 0, 0, 0, 0}));
}

// A team of more workers than the states are worth: rows behind the output's are not its own.
TEST(MergeStates, WritesItsRowsAloneWhereWorkersAreMoreThanTheWork) {
  constexpr int kRows = 128, kBehind = 128, kHeads = 2, kDim = 64;  // work for two
  States s = random_states(2, kRows, kHeads, kDim, DType::fp32, 3);
  s.o.resize(2 * s.o.size());  // what lies behind is readable
  s.lse.resize(2 * s.lse.size());
  std::vector<float> memory(static_cast<size_t>(kRows + kBehind) * kHeads * kDim, 7.f),
      lse(static_cast<size_t>(kRows + kBehind) * kHeads, 7.f);
  const TensorView out(memory.data(), DType::fp32, {kRows + kBehind, kHeads, kDim}),
      lse_out(lse.data(), DType::fp32, {kRows + kBehind, kHeads});
  WorkerTeam team(5);
  merge_states(s.o_view(), s.lse_view(), out.slice(0, 0, kRows), lse_out.slice(0, 0, kRows), Stream::cpu(team));
  for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i] == 7.f, i >= memory.size() / 2) << i;
  for (size_t i = 0; i < lse.size(); ++i) ASSERT_EQ(lse[i] == 7.f, i >= lse.size() / 2) << i;
}

}  // namespace
}  // namespace weft
