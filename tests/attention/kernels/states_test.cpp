// merge_states on every target, and pack_mask.
#include "states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "problem.h"
#include "weft/attention.h"

namespace weft {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using testing::expect_merged;
using testing::Merged;
using testing::random_states;
using testing::States;
using testing::Target;
using testing::targets;

TEST(MergeStates, WeighsStatesByTheirLse) {
  for (const Target* target : targets())
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
      for (const bool by_indptr : {false, true}) {
        States s = random_states(4, 5, 3, 72, dtype, 3);
        expect_merged(*target, s, dtype, by_indptr);
        expect_merged(*target, s, DType::fp32, by_indptr);
      }
}

TEST(MergeStates, SharesLargeMergesAmongWorkers) {
  States s = random_states(3, 300, 4, 64, DType::fp32, 4);
  for (const Target* target : targets())
    for (const bool by_indptr : {false, true}) expect_merged(*target, s, DType::fp32, by_indptr);
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
  for (const Target* target : targets()) {
    expect_merged(*target, s, DType::fp32, false);
    expect_merged(*target, s, DType::fp32, true);
    const Merged merged = testing::merge_on(*target, s, DType::fp32);
    EXPECT_EQ(merged.lse[0], -kInf);
    for (int d = 0; d < 8; ++d) EXPECT_EQ(testing::get(merged.o.data(), DType::fp32, d), 0.);
    for (size_t k = 1; k < 4; ++k) EXPECT_EQ(merged.lse[k], s.lse[4 + k]);
  }
}

// Weights are of differences: those of equal states are equal whatever their size, and a smaller one is nothing.
TEST(MergeStates, WeighsStatesWhoseLseIsVeryLarge) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float lse : {kMost, -kMost, 1e20f, -1e20f, 1e10f, -1e10f})
    for (const bool differ : {false, true}) {
      States s = random_states(3, 2, 2, 8, DType::fp32, 7);
      for (size_t i = 0; i < s.lse.size(); ++i) s.lse[i] = differ && i % 8 < 4 ? std::nextafter(lse, -kInf) : lse;
      for (const Target* target : targets()) {
        const Merged merged = testing::merge_on(*target, s, DType::fp32);
        for (size_t k = 0; k < 4; ++k) {
          EXPECT_EQ(merged.lse[k], lse) << target->name();
          for (int64_t d = 0; d < 8; ++d) {
            double sum = 0, weights = 0;
            for (size_t i = 0; i < 3; ++i) {
              if (s.lse[4 * i + k] != lse) continue;
              sum += testing::get(s.o.data(), DType::fp32, static_cast<int64_t>(4 * i + k) * 8 + d);
              weights += 1;
            }
            EXPECT_NEAR(testing::get(merged.o.data(), DType::fp32, static_cast<int64_t>(k) * 8 + d), sum / weights,
                        1e-5)
                << target->name() << " " << lse;
          }
        }
      }
    }
}

TEST(MergeStates, ARowWithoutStatesIsEmpty) {
  States one = random_states(1, 1, 1, 8, DType::fp32, 6);
  one.lse[0] = 0.f;
  const std::vector<int32_t> indptr = {0, 0, 1};
  for (const Target* target : targets()) {
    const Merged merged = testing::merge_list_on(*target, one, indptr, DType::fp32);
    EXPECT_EQ(merged.lse, (std::vector<float>{-kInf, 0.f}));
    for (int d = 0; d < 8; ++d) {
      EXPECT_EQ(testing::get(merged.o.data(), DType::fp32, d), 0.);
      EXPECT_EQ(testing::get(merged.o.data(), DType::fp32, 8 + d), testing::get(one.o.data(), DType::fp32, d));
    }
  }
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
  merge_states(TensorView(s.o.data(), DType::fp32, {s.n, kRows, kHeads, kDim}),
               TensorView(s.lse.data(), DType::fp32, {s.n, kRows, kHeads}), out.slice(0, 0, kRows),
               lse_out.slice(0, 0, kRows), Stream::cpu(team));
  for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(memory[i] == 7.f, i >= memory.size() / 2) << i;
  for (size_t i = 0; i < lse.size(); ++i) ASSERT_EQ(lse[i] == 7.f, i >= lse.size() / 2) << i;
}

}  // namespace
}  // namespace weft
