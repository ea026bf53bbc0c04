// Quest on a card that is the host machine, beside the CPU's: tensors of both, full of small integers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "tests/ops/cuda/host_card.h"
#include "weft/quest.h"

namespace weft::testing {

inline size_t bytes_of(DType dtype, int64_t elements) { return static_cast<size_t>(elements * bits_of(dtype) / 8); }

struct QuestSetting {
  DType queries = DType::bf16, summaries = DType::bf16;
  int batch = 1, qo_len = 1, heads = 1, group = 1, dim = 8, page_size = 4, most_pages = 1, budget = 1;
  std::vector<int32_t> kv_len = {};
  int num_pages = 37;  // requests share them
};

// What one device has of a step.
struct QuestSide {
  TensorView q;
  PageSummaries summaries;
  DeviceBatch batch;
  PlannedPages planned;
  Workspace scratch;
};

class CardQuest : public HostCard {
 protected:
  explicit CardQuest(std::string_view architecture = "sm_90a") : HostCard(false, architecture) {}

  // Tensors of the CPU, full of numbers, and of the card, with the same.
  struct Tensors {
    std::vector<std::vector<char>> host;
    QuestSide cpu, card;
  };

  TensorView make(Tensors& of, TensorView& on_card, DType dtype, std::initializer_list<int64_t> shape,
                  const std::function<double(int64_t)>& number) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    std::vector<char>& bytes = of.host.emplace_back(bytes_of(dtype, n));
    for (int64_t i = 0; i < n; ++i) put(bytes.data(), dtype, i, number(i));
    on_card = TensorView(place(bytes), dtype, shape, Device::cuda(0));
    return TensorView(bytes.data(), dtype, shape);
  }
  // Of integers, and of numbers that every type has.
  static void put(char* to, DType dtype, int64_t i, double x) {
    const auto value = static_cast<float>(x);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (dtype == DType::int32) reinterpret_cast<int32_t*>(to)[i] = static_cast<int32_t>(x);
    if (dtype == DType::fp32) reinterpret_cast<float*>(to)[i] = value;
    if (dtype == DType::bf16) reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(bits >> 16);
    if (dtype == DType::fp16)  // a normal number, 0, or none
      reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(
          x == 0             ? 0
          : std::isfinite(x) ? (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 1023)
          : std::isnan(x)    ? 0x7e00
                             : (bits >> 16 & 0x8000) | 0x7c00);
  }
  double integer(int most) { return std::uniform_int_distribution<int>(-most, most)(random_); }

  // Lists that are not set: what the choice does not write stays.
  PlannedPages unset_lists(Tensors& of, PlannedPages& on_card, const QuestSetting& s) {
    const auto nothing = [](int64_t) { return -7; };
    PlannedPages planned;
    planned.page_size = s.page_size;
    planned.num_pages = s.num_pages;
    on_card = planned;
    planned.page_ids = make(of, on_card.page_ids, DType::int32, {s.heads, s.batch, s.budget}, nothing);
    planned.positions = make(of, on_card.positions, DType::int32, {s.heads, s.batch, s.budget}, nothing);
    planned.kv_len = make(of, on_card.kv_len, DType::int32, {s.batch}, nothing);
    planned.q_positions = make(of, on_card.q_positions, DType::int32, {s.batch, s.qo_len, 4}, nothing).select(2, 3);
    on_card.q_positions = on_card.q_positions.select(2, 3);
    return planned;
  }

  void make_step(Tensors& of, const QuestSetting& s, bool has_extremes = false) {
    of.host.reserve(16);
    QuestSide &cpu = of.cpu, &card = of.card;
    cpu.q = make(of, card.q, s.queries, {s.batch * s.qo_len, s.heads * s.group, s.dim},
                 [&](int64_t) { return integer(3); });
    std::vector<double> least;
    const auto low = [&](int64_t) {
      least.push_back(integer(4));
      if (has_extremes && random_() % 64 == 0) least.back() = random_() % 2 == 0 ? NAN : -INFINITY;
      return least.back();
    };
    cpu.summaries.min = make(of, card.summaries.min, s.summaries, {s.num_pages, s.heads, s.dim}, low);
    cpu.summaries.max = make(of, card.summaries.max, s.summaries, {s.num_pages, s.heads, s.dim}, [&](int64_t i) {
      const double from = least[static_cast<size_t>(i)];
      if (std::isnan(from)) return from;
      if (has_extremes && random_() % 64 == 0) return static_cast<double>(INFINITY);
      return std::isinf(from) ? 2. : from + static_cast<double>(random_() % 3);
    });
    cpu.batch.num_pages = s.num_pages;
    cpu.batch.qo_len = s.qo_len;
    card.batch = cpu.batch;
    cpu.batch.kv_len = make(of, card.batch.kv_len, DType::int32, {s.batch},
                            [&](int64_t i) { return s.kv_len[static_cast<size_t>(i)]; });
    cpu.batch.page_table = make(of, card.batch.page_table, DType::int32, {s.batch, s.most_pages},
                                [&](int64_t) { return random_() % static_cast<unsigned>(s.num_pages); });
    cpu.planned = unset_lists(of, card.planned, s);
    card.scratch = Workspace(Device::cuda(0), choose_pages_bytes(s.batch, s.heads, s.most_pages));
    cpu.scratch = Workspace(Device::cpu(), card.scratch.bytes());
  }

  static void expect_same_ints(const TensorView& card, const TensorView& cpu, const char* what) {
    ASSERT_EQ(card.size(), cpu.size());
    const int64_t inner = cpu.shape(cpu.rank() - 1);
    for (int64_t i = 0; i < cpu.size(); ++i) {
      const auto at = [&](const TensorView& t) {
        if (t.rank() == 2) return t.as<int32_t>()[i / inner * t.stride(0) + i % inner * t.stride(1)];
        return t.as<int32_t>()[i];
      };
      ASSERT_EQ(at(card), at(cpu)) << what << " " << i;
    }
  }
  static void expect_same_lists(const Tensors& of) {
    expect_same_ints(of.card.planned.page_ids, of.cpu.planned.page_ids, "page id");
    expect_same_ints(of.card.planned.positions, of.cpu.planned.positions, "position");
    expect_same_ints(of.card.planned.kv_len, of.cpu.planned.kv_len, "kv_len");
    expect_same_ints(of.card.planned.q_positions, of.cpu.planned.q_positions, "q_position");
  }
  static void forget_lists(const Tensors& of) {
    const TensorView& ids = of.card.planned.page_ids;
    std::fill_n(ids.as<int32_t>(), ids.size(), -7);
  }
  static void choose(const QuestSide& side) {
    choose_pages(side.q, side.summaries, side.batch, side.planned, side.scratch);
  }
  static void synchronize() { Stream::cuda(nullptr).synchronize(); }

  std::mt19937 random_{20261128};
};

}  // namespace weft::testing
