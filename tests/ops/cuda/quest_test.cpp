// Quest on a card, in the host machine, against the CPU's, which has tests of its own. Queries and keys are small
// integers: bounds are exact, whatever the order of their sums, and many of them are equal.
#include "weft/quest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attention/cuda/kernels/args.h"
#include "tests/ops/cuda/card_quest.h"
#include "tests/ops/cuda/quest_steps.h"
#include "weft/error.h"

namespace weft {
namespace {

using testing::CardQuest;
using Setting = testing::QuestSetting;
using Side = testing::QuestSide;

// Lists of fewer pages than the budget, of as many, of more; of one query and several, which lie in one page and two.
TEST_F(CardQuest, ChoosesWhatTheCpuChooses) {
  const Setting settings[] = {
      {.batch = 2, .heads = 2, .group = 4, .dim = 64, .most_pages = 70, .budget = 9, .kv_len = {280, 36}},
      {.batch = 1, .qo_len = 5, .heads = 2, .group = 2, .dim = 144, .most_pages = 90, .budget = 7, .kv_len = {350}},
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
        forget_lists(step);
        choose(step.card);
        choose(step.cpu);
        expect_same_lists(step);
      }
      synchronize();
    }
  testing::host_multiprocessors = 1;
}

// More pages than shared memory has room for, in a cluster of two; in one of eight a tile for each warp, and CTAs that
// have none; by one CTA more tiles than a ring has.
TEST_F(CardQuest, ChoosesAmongAnyNumberOfPages) {
  testing::host_ctas_of_multiprocessor = 1;
  for (const int ctas : {2, 8}) {
    testing::host_multiprocessors = ctas;
    const int pages = ctas == 2 ? 8300 : 1000;
    Tensors step;
    make_step(step, {.group = 4,
                     .dim = ctas == 2 ? 8 : 256,
                     .page_size = 1,
                     .most_pages = pages,
                     .budget = 100,
                     .kv_len = {pages - 1},
                     .num_pages = 501});
    choose(step.card);
    choose(step.cpu);
    expect_same_lists(step);
  }
  for (const int multiprocessors : {8, 1}) {
    testing::host_multiprocessors = multiprocessors;
    Tensors step;
    const int pages = multiprocessors == 8 ? 140 : 700;
    make_step(step, {.group = 9, .dim = 128, .most_pages = 700, .budget = 9, .kv_len = {4 * pages}});
    choose(step.card);
    choose(step.cpu);
    expect_same_lists(step);
  }
  testing::host_ctas_of_multiprocessor = 2;
}

// Bounds of any kind: q has one element that is not 0, and the greatest elements of pages are the bounds.
TEST_F(CardQuest, FindsTheThresholdAmongAnyBounds) {
  constexpr int kPages = 700;
  const float near = 100.f, step_of_near = 0x1p-17f;  // to the next number
  const std::vector<std::function<float(int)>> kinds = {
      [](int) { return 3.f; },                                                                     // all equal
      [&](int i) { return i % 3 == 0 ? near : near + static_cast<float>(i % 3) * step_of_near; },  // neighbours
      [&](int i) { return i < 20   ? 1e30f
                          : i < 40 ? -1e30f
                                   : near + static_cast<float>(i % 90) * step_of_near; },
      [&](int i) { return std::ldexp(i % 2 == 0 ? 1.f : -1.f, static_cast<int>(random_() % 250) - 125); },
      [&](int i) { return i < 20   ? 1e30f
                          : i < 44 ? near + static_cast<float>(i * 7 % 24) * step_of_near
                                   : -1e30f; },
      [](int i) { return i % 4 == 0   ? INFINITY
                         : i % 4 == 1 ? -INFINITY
                                      : static_cast<float>(i % 5); },
  };
  testing::host_ctas_of_multiprocessor = 1;
  testing::host_multiprocessors = 2;
  for (const auto& bound : kinds)
    for (const int budget : {1, 30, 350, kPages - 1}) {
      Tensors step;
      make_step(step, {.queries = DType::fp32,
                       .summaries = DType::fp32,
                       .page_size = 1,
                       .most_pages = kPages + 1,
                       .budget = budget + 1,
                       .kv_len = {kPages + 1},
                       .num_pages = kPages + 1});
      for (const Side* side : {&step.cpu, &step.card}) {
        auto* const q = side->q.as<float>();
        std::fill(q, q + 8, 0.f);
        q[2] = 1.f;
        auto* const table = side->batch.page_table.as<int32_t>();
        std::iota(table, table + kPages + 1, 0);
        std::fill_n(side->summaries.min.as<float>(), 8 * (kPages + 1), 0.f);
        std::fill_n(side->summaries.max.as<float>(), 8 * (kPages + 1), 0.f);
      }
      for (int page = 0; page < kPages; ++page)
        step.cpu.summaries.max.as<float>()[8 * page + 2] = step.card.summaries.max.as<float>()[8 * page + 2] =
            bound(page);
      choose(step.card);
      choose(step.cpu);
      expect_same_lists(step);
    }
  testing::host_ctas_of_multiprocessor = 2;
  testing::host_multiprocessors = 1;
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

// Lists and lengths of a plan are not there until the next kernel waits for the one before it.
void hold_lists_back(const attention::PlanHeader* plan) {
  for (const attention::Section& of : {plan->page_indices, plan->kv_positions, plan->kv_len}) {
    auto* const there = attention::section<int32_t>(plan, of);
    const std::vector<int32_t> numbers(there, there + of.count);
    std::fill_n(there, of.count, 0x40404040);
    simt::previous_kernel = [there, numbers, others = std::move(simt::previous_kernel)] {
      std::copy(numbers.begin(), numbers.end(), there);
      if (others) others();
    };
  }
}

TEST_F(CardQuest, StepsInOneGraphAreTheCpus) {
  // A run begins before what sets its lists has ended: these are there when it waits for that, and not before.
  bool sets = false;
  int runs = 0;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid& grid, const void* args) {
    if (sets) {
      EXPECT_TRUE(grid.programmatic_launch) << symbol;
      hold_lists_back(static_cast<const attention::cuda::Call*>(args)->plan);
    }
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
  Tensors of_many;  // 6 query tokens, which may lie in 3 pages, and here do
  make_step(of_many, {.qo_len = 6, .most_pages = 10, .budget = 2, .kv_len = {25}});
  refused(of_many.card, ErrorCode::invalid_argument, "budget = 2; 6 query tokens may lie in 3 pages of 4");
}

}  // namespace
}  // namespace weft
