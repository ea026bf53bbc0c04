// Drives a leaf, and the core's softmax behind it, with score tiles made here, and says in double what they should have
// done.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "attention/cpu/kernels/core.h"
#include "attention/cpu/leaf.h"
#include "attention/params.h"
#include "device/cpu/cpuid.h"

namespace weft::test {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// One cell as the test sees it.
struct Cell {
  abi::ScoreRow row;
  int kv_idx, kv_pos;
};
// The logit of a cell from q . k, without softmax the probability; nothing: hidden.
using Expected = std::function<std::optional<double>(const Cell&, double raw)>;

struct TileShape {
  int num_rows = 3;
  int num_kv = 64;
  int kv_begin = 0;
  bool boundary = false;
  std::vector<int> positions = {};  // empty: kv_begin + j
};

// An instruction set, and the type that probabilities leave in.
struct Target {
  Isa isa;
  DType compute;
};

// The state of some rows, carried over tiles, beside the same in double.
class LeafRun {
 public:
  LeafRun(const abi::Leaf& leaf, Target target, std::vector<abi::Slot> slots, std::vector<abi::ScoreRow> rows)
      : leaf_(leaf),
        core_(attention::cpu::core_for(target.isa)),
        compute_(target.compute),
        slots_(std::move(slots)),
        rows_(std::move(rows)) {
    const size_t n = rows_.size();
    m_.assign(n, -std::numeric_limits<float>::infinity());
    l_.assign(n, 0.f);
    alpha_.assign(n, kNan);
    sum_.assign(n, 0.0);
  }

  // One tile of random scores. Hidden cells hold `poison` where the shape allows it.
  void tile(const TileShape& shape, const Expected& expected, std::mt19937& random, float poison = 0.f) {
    const int padded = (shape.num_kv + 31) / 32 * 32;
    const int ld = padded + 8;
    std::normal_distribution<float> normal(0.f, 3.f);
    std::vector<float> scores(rows_.size() * static_cast<size_t>(ld));
    for (float& s : scores) s = normal(random);
    std::vector<std::vector<std::optional<double>>> want(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r)
      for (int j = 0; j < padded; ++j) {
        float& raw = scores[r * static_cast<size_t>(ld) + static_cast<size_t>(j)];
        const int pos =
            shape.positions.empty() || j >= shape.num_kv ? shape.kv_begin + j : shape.positions[static_cast<size_t>(j)];
        std::optional<double> logit;
        if (j < shape.num_kv) logit = expected({rows_[r], shape.kv_begin + j, pos}, static_cast<double>(raw));
        if (j >= shape.num_kv) raw = kNan;
        if (!logit && poison != 0.f) raw = poison;
        want[r].push_back(logit);
      }
    std::vector<uint16_t> halves(scores.size(), 0x7fc0);
    const std::vector<float> m_before = m_, given = scores;
    std::vector<int> positions(static_cast<size_t>(padded), -1);
    for (int j = 0; j < shape.num_kv; ++j)
      positions[static_cast<size_t>(j)] =
          shape.positions.empty() ? shape.kv_begin + j : shape.positions[static_cast<size_t>(j)];
    const int num_rows = static_cast<int>(rows_.size());
    if (leaf_.score) {
      const abi::ScoreTile t{.params = slots_.data(),
                             .rows = rows_.data(),
                             .kv_positions = positions.data(),
                             .num_rows = num_rows,
                             .num_kv = shape.num_kv,
                             .kv_begin = shape.kv_begin,
                             .scores = scores.data(),
                             .ld = ld};
      leaf_.score(&t);
    }
    core_.softmax({.rows = rows_.data(),
                   .kv_positions = positions.data(),
                   .num_rows = num_rows,
                   .num_kv_padded = padded,
                   .use_softmax = leaf_.use_softmax,
                   .boundary = shape.boundary ? 1 : 0,
                   .scale = leaf_.score ? 1.f : static_cast<float>(slots_[0].real),
                   .scores = scores.data(),
                   .ld = ld,
                   .probs_bf16 = compute_ == DType::bf16 ? halves.data() : nullptr,
                   .m = m_.data(),
                   .l = l_.data(),
                   .alpha = alpha_.data()});
    for (size_t r = 0; r < rows_.size(); ++r) {
      const size_t at = r * static_cast<size_t>(ld);
      const auto probability = [&](int j) {
        const size_t i = at + static_cast<size_t>(j);
        return static_cast<double>(compute_ == DType::bf16 ? from_bf16(halves[i]) : scores[i]);
      };
      check_row(r, want[r], m_before[r], probability);
      for (int j = padded; j < ld; ++j)
        EXPECT_EQ(scores[at + static_cast<size_t>(j)], given[at + static_cast<size_t>(j)]) << "wrote past the tile";
    }
  }

  const std::vector<float>& m() const { return m_; }
  const std::vector<float>& l() const { return l_; }
  const std::vector<float>& alpha() const { return alpha_; }
  std::vector<abi::ScoreRow>& rows() { return rows_; }

 private:
  void check_row(size_t r, const std::vector<std::optional<double>>& want, float m_before,
                 const std::function<double(int)>& probability) {
    const double unit = compute_ == DType::bf16 ? 0x1p-8 : 3e-6;
    if (leaf_.use_softmax == 0) {
      EXPECT_EQ(alpha_[r], 1.f);
      for (size_t j = 0; j < want.size(); ++j)
        EXPECT_NEAR(probability(static_cast<int>(j)), want[j].value_or(0.0),
                    want[j] ? unit * std::abs(*want[j]) + 1e-6 : 0.0)
            << "row " << r << " column " << j;
      return;
    }
    double top = static_cast<double>(m_before);
    for (const auto& logit : want) top = std::max(top, logit.value_or(-kInf));
    if (top == -kInf) {
      EXPECT_EQ(m_[r], -std::numeric_limits<float>::infinity());
      EXPECT_EQ(l_[r], 0.f);
      EXPECT_TRUE(alpha_[r] == 0.f || alpha_[r] == 1.f) << alpha_[r];
    } else {
      EXPECT_NEAR(static_cast<double>(m_[r]), top, 2e-6 * std::max(1.0, std::abs(top)));
    }
    double sum = 0;
    for (size_t j = 0; j < want.size(); ++j) {
      const double p = want[j] && top != -kInf ? std::exp(*want[j] - top) : 0.0;
      sum += p;
      const double actual = probability(static_cast<int>(j));
      const bool seen = want[j] && *want[j] != -kInf;
      EXPECT_NEAR(actual, p, seen ? unit * p * (1 + std::abs(top) + std::abs(*want[j])) + 1e-37 : 0.0)
          << "row " << r << " column " << j;
    }
    const double before = static_cast<double>(m_before);
    const double alpha = before == -kInf ? 0.0 : std::exp(before - top);
    if (top != -kInf) {
      EXPECT_NEAR(static_cast<double>(alpha_[r]), alpha,
                  before == -kInf ? 0.0 : 3e-6 * alpha * (1 + std::abs(before)) + 1e-37);
    }
    sum_[r] = sum_[r] * alpha + sum;
    EXPECT_NEAR(static_cast<double>(l_[r]), sum_[r], 1e-5 * sum_[r] * (1 + std::abs(top == -kInf ? 0 : top)));
  }

  const abi::Leaf& leaf_;
  const attention::cpu::CoreTable& core_;
  DType compute_;
  std::vector<abi::Slot> slots_;
  std::vector<abi::ScoreRow> rows_;
  std::vector<float> m_, l_, alpha_;
  std::vector<double> sum_;
};

// Rows of one request: query token i at position kv_len - qo_len + i, everything visible.
inline std::vector<abi::ScoreRow> rows_of(int count, int qo_len, int kv_len, int batch = 0) {
  std::vector<abi::ScoreRow> rows;
  for (int i = 0; i < count; ++i)
    rows.push_back({batch,
                    i % qo_len,
                    i / qo_len,
                    i / qo_len / 2,
                    qo_len,
                    kv_len,
                    kv_len - qo_len + i % qo_len,
                    {0, 0},
                    {kv_len, 0}});
  return rows;
}

// Every instruction set this machine runs, with each type that its core gives probabilities in.
inline std::vector<Target> targets() {
  std::vector<Target> all;
  for (Isa isa : supported_isas()) {
    all.push_back({isa, DType::fp32});
    if (isa == Isa::avx512_bf16) all.push_back({isa, DType::bf16});
  }
  return all;
}
inline std::string to_string(const Target& t) {
  return std::string(weft::to_string(t.isa)) + " " + std::string(weft::to_string(t.compute));
}

}  // namespace weft::test
