// Quest on a card, in the host machine, against the CPU's, which has tests of its own. Queries and keys are small
// integers: bounds are exact, whatever the order of their sums, and many of them are equal.
#include "weft/quest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/ops/cuda/host_card.h"
#include "tests/ops/cuda/quest_steps.h"
#include "weft/error.h"

namespace weft {
namespace {

size_t bytes_of(DType dtype, int64_t elements) { return static_cast<size_t>(elements * bits_of(dtype) / 8); }

struct Setting {
  DType queries = DType::bf16, summaries = DType::bf16;
  int batch = 1, qo_len = 1, heads = 1, group = 1, dim = 8, page_size = 4, most_pages = 1, budget = 1;
  std::vector<int32_t> kv_len = {};
  int num_pages = 37;  // requests share them
};

// What one device has of a step.
struct Side {
  TensorView q;
  PageSummaries summaries;
  DeviceBatch batch;
  PlannedPages planned;
  Workspace scratch;
};

class CardQuest : public testing::HostCard {
 protected:
  // Tensors of the CPU, full of numbers, and of the card, with the same.
  struct Tensors {
    std::vector<std::vector<char>> host;
    Side cpu, card;
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
  PlannedPages unset_lists(Tensors& of, PlannedPages& on_card, const Setting& s) {
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

  void make_step(Tensors& of, const Setting& s, bool has_extremes = false) {
    of.host.reserve(16);
    Side &cpu = of.cpu, &card = of.card;
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
  static void choose(const Side& side) { choose_pages(side.q, side.summaries, side.batch, side.planned, side.scratch); }
  static void synchronize() { Stream::cuda(nullptr).synchronize(); }

  std::mt19937 random_{20261128};
};

// Lists of fewer pages than the budget, of as many, of more; of one query and several, which lie in one page and two.
TEST_F(CardQuest, ChoosesWhatTheCpuChooses) {
  const Setting settings[] = {
      {.batch = 3, .heads = 2, .group = 4, .dim = 40, .most_pages = 70, .budget = 9, .kv_len = {280, 36, 7}},
      {.batch = 2, .qo_len = 3, .heads = 2, .group = 2, .dim = 136, .most_pages = 30, .budget = 4, .kv_len = {118, 70}},
      {.batch = 2, .qo_len = 8, .group = 5, .dim = 264, .most_pages = 20, .budget = 3, .kv_len = {73, 80}},
      {.queries = DType::fp32,
       .summaries = DType::fp32,
       .batch = 2,
       .heads = 3,
       .dim = 24,
       .most_pages = 80,
       .budget = 1,
       .kv_len = {320, 4}},
      {.queries = DType::fp16,
       .batch = 1,
       .heads = 2,
       .group = 2,
       .dim = 16,
       .most_pages = 90,
       .budget = 40,
       .kv_len = {349}},
  };
  for (const Setting& s : settings)
    for (const int multiprocessors : {1, 8}) {  // a CTA a list, and several
      testing::host_multiprocessors = multiprocessors;
      Tensors step;
      make_step(step, s, multiprocessors == 8);
      for (int again = 0; again < 2; ++again) {  // on the scratch that the first one leaves
        choose(step.card);
        choose(step.cpu);
        expect_same_lists(step);
      }
      synchronize();
    }
  testing::host_multiprocessors = 1;
}

// More pages than shared memory has room for.
TEST_F(CardQuest, ChoosesAmongAnyNumberOfPages) {
  Tensors step;
  make_step(step, {.group = 4, .page_size = 1, .most_pages = 8300, .budget = 700, .kv_len = {8299}, .num_pages = 501});
  choose(step.card);
  choose(step.cpu);
  expect_same_lists(step);
}

TEST_F(CardQuest, ClampsLengthsAndPageIds) {
  const Setting s{.batch = 3, .heads = 2, .group = 4, .dim = 40, .most_pages = 20, .budget = 5, .kv_len = {80, 81, 40}};
  Tensors step;
  make_step(step, s);
  choose(step.card);
  EXPECT_THROW(synchronize(), Error);  // 81 tokens in 20 pages of 4
  EXPECT_EQ(step.card.planned.kv_len.as<int32_t>()[1], 80);
  auto* const kv_len = step.card.batch.kv_len.as<int32_t>();
  kv_len[1] = -1;
  choose(step.card);
  EXPECT_THROW(synchronize(), Error);
  EXPECT_EQ(step.card.planned.kv_len.as<int32_t>()[1], 0);
  kv_len[1] = 80;
  choose(step.card);
  EXPECT_NO_THROW(synchronize());
  auto* const table = step.card.batch.page_table.as<int32_t>();
  for (const int id : {-5, s.num_pages, 1 << 30}) {
    for (int page = 0; page < 10; ++page) table[2 * s.most_pages + page] = id;
    choose(step.card);
    EXPECT_THROW(synchronize(), Error);
    for (int64_t i = 0; i < step.card.planned.page_ids.size(); ++i) {
      const int32_t set = step.card.planned.page_ids.as<int32_t>()[i];
      ASSERT_TRUE(set >= 0 && set < s.num_pages) << set;
    }
  }
}

// As requests stand in a batch that is filled up.
TEST_F(CardQuest, ARequestWithoutTokensSeesNothing) {
  Tensors step;
  make_step(step, {.batch = 2, .group = 4, .most_pages = 3, .budget = 2, .kv_len = {0, 12}});
  choose(step.card);
  synchronize();
  const PlannedPages& planned = step.card.planned;
  EXPECT_EQ(planned.kv_len.as<int32_t>()[0], 0);
  EXPECT_EQ(planned.q_positions.as<int32_t>()[0], -1);
  for (int place = 0; place < 2; ++place) {
    EXPECT_EQ(planned.page_ids.as<int32_t>()[place], 0);
    EXPECT_GE(planned.positions.as<int32_t>()[place], 1 << 30);
  }
}

TEST_F(CardQuest, SetsWhatIsSelected) {
  const Setting s{.batch = 3, .heads = 2, .most_pages = 50, .budget = 40, .kv_len = {200, 9, 160}};
  Tensors step;
  make_step(step, s);
  std::vector<int32_t> selected;
  for (const int pages : {50, 3, 40})
    for (int head = 0; head < s.heads; ++head) {
      std::vector<int32_t> list(static_cast<size_t>(pages));
      std::iota(list.begin(), list.end(), 0);
      while (static_cast<int>(list.size()) > s.budget - 3 * head && pages > 3)
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(random_() % (list.size() - 1)));
      list.resize(static_cast<size_t>(s.budget), -1);
      selected.insert(selected.end(), list.begin(), list.end());
    }
  const auto set = [&](const std::vector<int32_t>& on, const Side& side, const int32_t* data) {
    ASSERT_EQ(on.size(), static_cast<size_t>(s.batch * s.heads * s.budget));
    set_pages(TensorView(data, DType::int32, {s.batch, s.heads, s.budget}, side.q.device()), side.batch, side.planned);
  };
  set(selected, step.card, place(selected));
  set(selected, step.cpu, selected.data());
  expect_same_lists(step);
  EXPECT_NO_THROW(synchronize());
  const auto refused = [&](size_t at, int32_t page, const char* what) {
    std::vector<int32_t> wrong = selected;
    wrong[at] = page;
    set(wrong, step.card, place(wrong));
    EXPECT_THROW(synchronize(), Error) << what;
    EXPECT_THROW(set(wrong, step.cpu, wrong.data()), Error) << what;
    for (int64_t i = 0; i < step.card.planned.page_ids.size(); ++i) {
      const int32_t id = step.card.planned.page_ids.as<int32_t>()[i];
      ASSERT_TRUE(id >= 0 && id < s.num_pages) << what;
    }
  };
  refused(39, 50, "beyond the request's pages");
  refused(0, -2, "below 0");
  refused(1, selected[0], "twice");
  refused(33, selected[31], "out of order, of another 32");
  refused(81, 0, "out of order, of a short list");
  refused(82, -1, "without the last page");
  EXPECT_NO_THROW(synchronize());
}

// Keys with NaN and infinities; pages of a table, and of places.
TEST_F(CardQuest, SummarisesAsTheCpu) {
  constexpr int64_t kPages = 9, kSize = 4, kHeads = 2, kDim = 40;
  const std::pair<DType, DType> types[] = {{DType::fp32, DType::bf16}, {DType::fp16, DType::fp32}};
  for (const auto& [key_type, type] : types)
    for (const Layout layout : {Layout::nhd, Layout::hnd}) {
      Tensors of;
      of.host.reserve(16);
      TensorView card_keys, card_places;
      const auto number = [&](int64_t) {
        const double x = std::normal_distribution<double>(0, 3)(random_);
        if (random_() % 50 == 0) return random_() % 2 == 0 ? NAN : std::copysign(INFINITY, x);
        return std::copysign(std::max(std::fabs(x), 1e-3), x);
      };
      const bool nhd = layout == Layout::nhd;
      const TensorView keys =
          make(of, card_keys, key_type, {kPages, nhd ? kSize : kHeads, nhd ? kHeads : kSize, kDim}, number);
      const auto nothing = [](int64_t) { return 77.; };
      PageSummaries cpu, card;
      cpu.min = make(of, card.min, type, {kPages, kHeads, kDim}, nothing);
      cpu.max = make(of, card.max, type, {kPages, kHeads, kDim}, nothing);
      const auto expect_same = [&] {
        for (const auto& [a, b] : {std::pair{card.min, cpu.min}, {card.max, cpu.max}})
          for (int64_t i = 0; i < a.size(); ++i) {
            if (type == DType::bf16) {
              ASSERT_EQ(a.as<uint16_t>()[i], b.as<uint16_t>()[i]) << i;
            } else {
              const float x = a.as<float>()[i], y = b.as<float>()[i];
              ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << i << ": " << x << ", " << y;
            }
          }
      };
      // Two requests, of which the second has its pages in another order.
      const std::vector<int32_t> indptr{0, 5, 6}, page_indptr{0, 3, 5}, ids{7, 0, 4, 8, 2}, last{2, 1};
      const PageTableView pages{static_cast<int>(kSize), kPages, page_indptr, ids, last};
      update_page_summaries(card_keys, indptr, pages, layout, card);
      update_page_summaries(keys, indptr, pages, layout, cpu);
      expect_same();
      const std::vector<int32_t> places{5, 2, 5, 3, 3, 0, 6, 0, 6, 1, 6, 2, 1, 3};
      const std::initializer_list<int64_t> shape{static_cast<int64_t>(places.size() / 2), 2};
      update_page_summaries(card_keys, TensorView(place(places), DType::int32, shape, Device::cuda(0)), layout, card);
      update_page_summaries(keys, TensorView(places.data(), DType::int32, shape), layout, cpu);
      synchronize();
      expect_same();
      const std::vector<int32_t> wrong{2, 4};
      update_page_summaries(card_keys, TensorView(place(wrong), DType::int32, {1, 2}, Device::cuda(0)), layout, card);
      EXPECT_THROW(synchronize(), Error);
      EXPECT_THROW(update_page_summaries(keys, TensorView(wrong.data(), DType::int32, {1, 2}), layout, cpu), Error);
    }
}

TEST_F(CardQuest, StepsInOneGraphAreTheCpus) {
  // A run reads its plan first of all: not before what sets it has ended.
  bool sets = false;
  int runs = 0;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid& grid, const void*) {
    EXPECT_FALSE(sets && grid.programmatic_launch) << symbol;
    runs += sets ? 1 : 0;
    sets = symbol.starts_with("weft_choose_pages");
  };
  for (const testing::QuestCase& of : testing::quest_cases()) testing::QuestSteps(of, 1).run(8);
  EXPECT_EQ(runs, 2 * 9);
}

TEST_F(CardQuest, RefusesWhatDoesNotFit) {
  const Setting s{.batch = 2, .group = 4, .most_pages = 10, .budget = 3, .kv_len = {40, 20}};
  Tensors step;
  make_step(step, s);
  const auto refused = [](const Side& side, ErrorCode code, const std::string& named) {
    try {
      choose(side);
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  };
  const auto with = [&](const auto& change) {
    Side side{step.card.q, step.card.summaries, step.card.batch, step.card.planned,
              Workspace(Device::cuda(0), step.card.scratch.bytes())};
    change(side);
    return side;
  };
  refused(with([&](Side& x) { x.scratch = Workspace(Device::cuda(0), step.card.scratch.bytes() - 4); }),
          ErrorCode::workspace_too_small, "choose_pages_bytes");
  refused(with([&](Side& x) { x.scratch = Workspace(Device::cpu(), 4096); }), ErrorCode::invalid_device, "scratch");
  refused(with([&](Side& x) { x.q = step.cpu.q; }), ErrorCode::invalid_device, "summaries.min");
  refused(with([&](Side& x) { x.q = x.q.slice(0, 0, 1); }), ErrorCode::invalid_shape, "2 requests");
  refused(with([&](Side& x) { x.q = x.q.slice(2, 0, 4); }), ErrorCode::invalid_shape, "last axes agree");
  refused(with([&](Side& x) { x.batch.qo_len = 2; }), ErrorCode::plan_mismatch, "query tokens");
  refused(with([&](Side& x) { x.batch.num_pages = s.num_pages + 1; }), ErrorCode::invalid_argument, "num_pages");
  refused(with([&](Side& x) { x.batch.kv_len = {}; }), ErrorCode::invalid_argument, "batch.kv_len");
  refused(with([&](Side& x) { x.batch.page_table = x.batch.page_table.slice(0, 0, 1); }), ErrorCode::invalid_shape,
          "page_table");
  refused(with([&](Side& x) { x.summaries.max = x.batch.kv_len; }), ErrorCode::invalid_dtype, "summaries.max");
  refused(with([&](Side& x) { x.planned = {}; }), ErrorCode::invalid_argument, "planned pages");
  const auto cut = [](const TensorView& t) { return t.slice(2, 0, 4); };
  refused(with([&](Side& x) {
            x.q = cut(x.q), x.summaries = {cut(x.summaries.min), cut(x.summaries.max)};
          }),
          ErrorCode::invalid_stride, "8 elements");
}

}  // namespace
}  // namespace weft
