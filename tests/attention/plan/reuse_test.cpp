// Plans in workspaces: exact sizes, bounds, uploads, and one plan for several steps.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "tests/attention/plan/plan_support.h"

namespace weft::test {
namespace {

using namespace attention;

ErrorCode code_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

struct Bounded {
  KernelTraits traits;
  PlanBounds bounds;
  Keys keys;
};

Bounded draw_bounds() {
  Bounded b;
  b.keys = *rc::gen::element(Keys::all, Keys::causal, Keys::window);
  b.traits = *rc::gen::arbitrary<bool>() ? cpu_like_traits(b.keys) : per_head_traits(b.keys);
  if (*rc::gen::arbitrary<bool>())
    for (TileClass& c : b.traits.classes) c.all_kv_heads = true;
  b.bounds = {.max_requests = *rc::gen::inRange(0, 9),
              .max_rows = *rc::gen::inRange(0, 200),
              .max_qo_len = *rc::gen::element(0, 1, 3, 30),
              .max_pages = *rc::gen::inRange(0, 500),
              .max_kv_len = *rc::gen::inRange(0, 2000),
              .page_size = *rc::gen::element(1, 16),
              .num_qo_heads = *rc::gen::element(4, 8, 28),
              .num_kv_heads = *rc::gen::element(1, 2, 4),
              .workers = *rc::gen::element(1, 2, 5, 40),
              .mode = *rc::gen::element(PlanMode::balanced, PlanMode::paper, PlanMode::fixed_split, PlanMode::no_split,
                                        PlanMode::even)};
  if (b.bounds.mode == PlanMode::fixed_split) b.bounds.fixed_split_size = *rc::gen::element(64, 128, 640);
  return b;
}

Batch draw_within(const Bounded& bounded) {
  const PlanBounds& bounds = bounded.bounds;
  Batch b;
  b.page_size = bounds.page_size;
  b.num_qo_heads = bounds.num_qo_heads;
  b.num_kv_heads = bounds.num_kv_heads;
  b.workers = *rc::gen::inRange(1, bounds.workers + 1);
  b.mode = bounds.mode;
  b.fixed_split_size = bounds.fixed_split_size;
  b.scalars = scalars_of(bounded.keys, 77);
  int64_t rows = bounds.max_rows, pages = bounds.max_pages;
  const bool even = bounds.mode == PlanMode::even;
  const int most_requests = even ? static_cast<int>(std::min<int64_t>(rows, bounds.max_requests)) : bounds.max_requests;
  const int requests = *rc::gen::inRange(0, most_requests + 1);
  for (int r = 0; r < requests; ++r) {
    const auto longest = static_cast<int>(bounds.max_qo_len == 0 ? rows : std::min<int64_t>(rows, bounds.max_qo_len));
    const int qo = even ? 1 : *rc::gen::oneOf(rc::gen::just(std::min(longest, 1)), rc::gen::inRange(0, longest + 1));
    const int64_t most = std::min(bounds.max_kv_len, pages * bounds.page_size);
    const int kv =
        *rc::gen::oneOf(rc::gen::just(static_cast<int>(most)), rc::gen::inRange(0, static_cast<int>(most) + 1));
    rows -= qo;
    pages -= (kv + bounds.page_size - 1) / bounds.page_size;
    b.qo.push_back(qo);
    b.kv.push_back(kv);
  }
  return b;
}

RC_GTEST_PROP(Bounds, no_plan_within_them_needs_more, ()) {
  const Bounded bounded = draw_bounds();
  const size_t most = Planner::workspace_bytes(bounded.traits, bounded.bounds);
  for (int i = 0; i < 4; ++i) {
    Batch b = draw_within(bounded);
    RC_ASSERT(Planner::plan(bounded.traits, b.input()).workspace_bytes() <= most);
  }
}

RC_GTEST_PROP(Bounds, plans_made_with_them_fit_and_are_as_large, ()) {
  const Bounded bounded = draw_bounds();
  const size_t most = Planner::workspace_bytes(bounded.traits, bounded.bounds);
  long long partial_states = -1;
  for (int i = 0; i < 4; ++i) {
    Batch b = draw_within(bounded);
    b.bounds = &bounded.bounds;
    const Plan plan = Planner::plan(bounded.traits, b.input());
    verify(plan);  // sections disjoint, counts within
    RC_ASSERT(plan.workspace_bytes() == most);
    if (partial_states < 0) partial_states = plan.impl().header().partial_data.offset;
    RC_ASSERT(plan.impl().header().partial_data.offset == partial_states);
    RC_ASSERT(plan.impl().header().bounds != 0u);
  }
}

// What a kernel would read from the workspace, section by section.
std::string uploaded(const Workspace& workspace) {
  const auto& h = *static_cast<const PlanHeader*>(workspace.data());
  std::string all;
  const auto add = [&](const Section& s, size_t bytes) {
    all.append(static_cast<const char*>(workspace.data()) + s.offset, static_cast<size_t>(s.count) * bytes);
    all.push_back('|');
  };
  add(h.records, sizeof(ItemRecord));
  add(h.worker_indptr, sizeof(int));
  add(h.items, sizeof(WorkItem));
  add(h.units, sizeof(Unit));
  add(h.rows, sizeof(PlanRow));
  add(h.page_lists, sizeof(PageList));
  add(h.partials, sizeof(Partial));
  add(h.merge_groups, sizeof(MergeGroup));
  add(h.merge_sources, sizeof(MergeSource));
  add(h.qo_len, sizeof(int));
  add(h.kv_len, sizeof(int));
  add(h.page_indices, sizeof(int));
  add(h.counters, sizeof(int));
  return all;
}

TEST(Upload, OneWorkspaceReplays1000OtherPlansAsIfItWereFresh) {
  const KernelTraits traits = per_head_traits(Keys::causal);
  const PlanBounds bounds{.max_requests = 12,
                          .max_rows = 300,
                          .max_pages = 4000,
                          .max_kv_len = 6000,
                          .page_size = 16,
                          .num_qo_heads = 32,
                          .num_kv_heads = 8,
                          .workers = 16};
  const size_t bytes = Planner::workspace_bytes(traits, bounds);
  Workspace workspace(Device::cpu(), bytes);
  std::memset(workspace.data(), 0x5a, bytes);
  std::mt19937 random(9);
  for (int round = 0; round < 1000; ++round) {
    Batch b;
    const int requests = static_cast<int>(random() % 13);
    for (int r = 0; r < requests; ++r) {
      b.qo.push_back(random() % 4 == 0 ? static_cast<int>(random() % 25) : 1);
      b.kv.push_back(static_cast<int>(random() % 5000));
    }
    b.workers = 1 + static_cast<int>(random() % 16);
    b.bounds = &bounds;
    b.borrow_page_ids = round % 2 == 0;
    const Plan plan = Planner::plan(traits, b.input());
    plan.upload(workspace);
    b.bounds = nullptr;
    b.borrow_page_ids = false;
    const Plan tight = Planner::plan(traits, b.input());
    Workspace fresh(Device::cpu(), tight.workspace_bytes());
    tight.upload(fresh);
    ASSERT_EQ(uploaded(workspace), uploaded(fresh)) << "round " << round;
    const auto& h = *static_cast<const PlanHeader*>(workspace.data());
    ASSERT_LE(h.partial_data.offset + h.partial_data.count * 4, static_cast<long long>(bytes));
    // A run leaves anything in the partials, and zero in the counters.
    std::memset(section<char>(workspace.data(), h.partial_data), 0x7f, static_cast<size_t>(h.partial_data.count) * 4);
  }
}

TEST(Bounds, SayWhichTilesAnyPlanMayHave) {
  using attention::TileKind;
  const auto bit = [](TileKind kind) { return 1 << static_cast<int>(kind); };
  const KernelTraits traits = per_head_traits();
  PlanBounds bounds{.max_requests = 4,
                    .max_rows = 400,
                    .max_pages = 100,
                    .max_kv_len = 400,
                    .page_size = 16,
                    .num_qo_heads = 32,
                    .num_kv_heads = 8,
                    .workers = 4};
  Batch b;
  b.qo = {1};
  b.kv = {300};
  EXPECT_EQ(Planner::plan(traits, b.input()).impl().header().tile_kinds, bit(TileKind::direct));
  b.bounds = &bounds;
  const int all = bit(TileKind::direct) | bit(TileKind::streamed) | bit(TileKind::packed);
  EXPECT_EQ(Planner::plan(traits, b.input()).impl().header().tile_kinds, all);
  const size_t bytes = Planner::workspace_bytes(traits, bounds);
  bounds.max_qo_len = 4;
  EXPECT_EQ(Planner::plan(traits, b.input()).impl().header().tile_kinds, bit(TileKind::direct));
  EXPECT_LT(Planner::workspace_bytes(traits, bounds), bytes);
  b.qo = {5};
  EXPECT_EQ(code_of([&] { Planner::plan(traits, b.input()); }), ErrorCode::invalid_argument);
  bounds.max_levels = 2;  // requests that share pages share tiles
  EXPECT_EQ(Planner::plan(traits, b.input()).impl().header().tile_kinds, all);
}

TEST(Upload, WritesNothingBeyondTheWorkspaceBytesOfAPlan) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    Batch b;
    for (int r = 0; r < 5; ++r) {
      b.qo.push_back(1 + static_cast<int>(random() % 40));
      b.kv.push_back(static_cast<int>(random() % 3000));
    }
    b.workers = 9;
    const Plan plan = Planner::plan(cpu_like_traits(), b.input());
    Workspace workspace(Device::cpu(), plan.workspace_bytes() + 256);
    std::memset(workspace.data(), 0x33, workspace.bytes());
    plan.upload(workspace);
    const auto& h = *static_cast<const PlanHeader*>(workspace.data());
    EXPECT_EQ(static_cast<size_t>(h.total_bytes), plan.workspace_bytes());
    const char* bytes = static_cast<const char*>(workspace.data());
    for (size_t i = static_cast<size_t>(h.partial_data.offset); i < workspace.bytes(); ++i) ASSERT_EQ(bytes[i], 0x33);
  }
}

TEST(Upload, RefusesASmallWorkspaceBeforeItWrites) {
  Batch b;
  b.qo = {1, 4};
  b.kv = {900, 70};
  const Plan plan = Planner::plan(cpu_like_traits(), b.input());
  Workspace workspace(Device::cpu(), plan.workspace_bytes() - 1);
  std::memset(workspace.data(), 0x11, workspace.bytes());
  EXPECT_EQ(code_of([&] { plan.upload(workspace); }), ErrorCode::workspace_too_small);
  for (size_t i = 0; i < workspace.bytes(); ++i) ASSERT_EQ(static_cast<char*>(workspace.data())[i], 0x11);
  Workspace nothing;
  EXPECT_EQ(code_of([&] { plan.upload(nothing); }), ErrorCode::workspace_too_small);
}

TEST(Covers, ALongerDecodeKeepsThePlanUntilItNeedsAnotherPage) {
  Batch b;
  b.qo = {1, 1};
  b.kv = {100, 33};
  Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
  b.kv = {112, 48};
  EXPECT_TRUE(plan.covers(b.input()));
  b.kv = {113, 48};
  EXPECT_FALSE(plan.covers(b.input()));  // an eighth page, for which the plan has no room
  b.kv = {113, 16};
  EXPECT_TRUE(plan.covers(b.input()));  // the other request gave its pages
  b.kv = {113, 49};
  EXPECT_EQ(code_of([&] { plan.update(b.input()); }), ErrorCode::plan_mismatch);
}

TEST(Covers, SparePagesLeaveRoomForSoManyMore) {
  for (const bool borrow : {false, true}) {
    Batch b;
    b.borrow_page_ids = borrow;
    b.qo = {1, 1};
    b.kv = {100, 33};
    b.spare_pages = 2;
    const KernelTraits traits = cpu_like_traits(Keys::causal);
    Plan plan = Planner::plan(traits, b.input());
    EXPECT_EQ(bytes_of(plan), bytes_of(Planner::plan(traits, b.input())));
    b.kv = {113, 49};  // two pages more
    ASSERT_TRUE(plan.covers(b.input()));
    const size_t room = plan.workspace_bytes();
    plan.update(b.input());
    EXPECT_EQ(plan.workspace_bytes(), room);
    if (!borrow) verify(plan);
    Workspace workspace(Device::cpu(), room);
    plan.upload(workspace);
    const auto& h = *static_cast<const PlanHeader*>(workspace.data());
    for (size_t page = 0; page < b.page_ids.size(); ++page)
      EXPECT_EQ(section<int>(workspace.data(), h.page_indices)[page], b.page_ids[page]);
    b.kv = {129, 49};
    EXPECT_FALSE(plan.covers(b.input()));
  }
  Batch b;
  b.qo = {1};
  b.kv = {5};
  b.spare_pages = -1;
  EXPECT_EQ(code_of([&] { Planner::plan(cpu_like_traits(), b.input()); }), ErrorCode::invalid_argument);
}

TEST(Covers, BoundsLeaveRoomForPages) {
  const PlanBounds bounds{.max_requests = 4,
                          .max_rows = 8,
                          .max_pages = 20,
                          .max_kv_len = 200,
                          .page_size = 16,
                          .num_qo_heads = 32,
                          .num_kv_heads = 8,
                          .workers = 4};
  Batch b;
  b.bounds = &bounds;
  b.qo = {1, 1};
  b.kv = {100, 33};
  Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
  b.kv = {200, 33};
  ASSERT_TRUE(plan.covers(b.input()));
  plan.update(b.input());
  verify(plan);
  b.bounds = nullptr;
  b.kv = {201, 33};
  EXPECT_FALSE(plan.covers(b.input()));
}

TEST(Covers, NotOtherRequestsModesWorkersOrScalars) {
  Batch b;
  b.qo = {1, 1};
  b.kv = {100, 33};
  b.scalars = scalars_of(Keys::window, 50);
  const Plan plan = Planner::plan(cpu_like_traits(Keys::window), b.input());
  EXPECT_TRUE(plan.covers(b.input()));
  const auto refuses = [&](auto change) {
    Batch other = b;
    change(other);
    EXPECT_FALSE(plan.covers(other.input()));
  };
  refuses([](Batch& o) { o.qo = {1, 2}; });
  refuses([](Batch& o) {
    o.qo = {1};
    o.kv = {100};
  });
  refuses([](Batch& o) { o.workers = 5; });
  refuses([](Batch& o) { o.mode = PlanMode::paper; });
  refuses([](Batch& o) { o.page_size = 8; });
  refuses([](Batch& o) { o.num_qo_heads = 16; });
  refuses([](Batch& o) { o.num_kv_heads = 4; });
  refuses([](Batch& o) { o.scalars = scalars_of(Keys::window, 51); });
  refuses([](Batch& o) { o.kv = {99, 33}; });  // the window of a shorter KV begins before the unit
}

TEST(Covers, AFixedSplitEndsWithItsChunk) {
  Batch b;
  b.mode = PlanMode::fixed_split;
  b.fixed_split_size = 64;
  b.page_size = 128;
  b.qo = {1};
  b.kv = {100};
  const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
  const auto covers = [&](int kv) {
    b.kv = {kv};
    return plan.covers(b.input());
  };
  EXPECT_TRUE(covers(128));
  EXPECT_TRUE(covers(65));
  EXPECT_FALSE(covers(64));
  b.page_size = 128;
  EXPECT_FALSE(covers(129));
}

// Which chunks a row has follows its window, so that another length is another plan.
TEST(Covers, AFixedSplitOfAWindowHoldsForItsOwnLengths) {
  Batch b;
  b.mode = PlanMode::fixed_split;
  b.fixed_split_size = 64;
  b.page_size = 128;
  b.qo = {1, 1};
  b.kv = {100, 30};
  b.scalars = scalars_of(Keys::window, 50);
  const Plan plan = Planner::plan(cpu_like_traits(Keys::window), b.input());
  EXPECT_TRUE(plan.covers(b.input()));
  b.kv = {101, 30};
  EXPECT_FALSE(plan.covers(b.input()));
  b.kv = {100, 31};  // its window holds all of its keys
  EXPECT_TRUE(plan.covers(b.input()));
}

// Lengths change, the plan stays: it must attend what a fresh plan attends, with the positions of a fresh plan.
RC_GTEST_PROP(Covers, an_updated_plan_attends_what_a_fresh_one_attends, ()) {
  const Keys keys = *rc::gen::element(Keys::all, Keys::causal, Keys::window, Keys::sink_and_window, Keys::prefix);
  const KvForm form = *rc::gen::element(KvForm::paged, KvForm::ragged, KvForm::padded);
  const int window_left = *rc::gen::element(-1, 3, 60);
  KernelTraits traits = *rc::gen::arbitrary<bool>() ? cpu_like_traits(keys, form) : per_head_traits(keys, form);
  traits.granule = 16;
  Batch b;
  b.form = form;
  b.num_kv_heads = 2;
  b.num_qo_heads = 8;
  b.max_kv_len = form == KvForm::padded ? 600 : 0;
  b.workers = *rc::gen::element(1, 3, 9);
  b.mode = *rc::gen::element(PlanMode::balanced, PlanMode::paper, PlanMode::fixed_split, PlanMode::no_split);
  b.fixed_split_size = b.mode == PlanMode::fixed_split ? 32 : 0;
  b.scalars = scalars_of(keys, window_left);
  const int requests = *rc::gen::inRange(1, 4);
  for (int r = 0; r < requests; ++r) {
    b.qo.push_back(*rc::gen::element(1, 1, 2, 40));
    b.kv.push_back(*rc::gen::inRange(0, 300));
  }
  const PlanBounds bounds{.max_requests = 8,
                          .max_rows = 200,
                          .max_pages = form == KvForm::paged ? 400 : 0,
                          .max_kv_len = 600,
                          .page_size = form == KvForm::paged ? 16 : 0,
                          .num_qo_heads = 8,
                          .num_kv_heads = 2,
                          .workers = 9,
                          .mode = b.mode,
                          .fixed_split_size = b.fixed_split_size};
  if (*rc::gen::arbitrary<bool>())
    b.bounds = &bounds;
  else if (form == KvForm::paged)
    b.spare_pages = *rc::gen::inRange(0, 20);
  Plan plan = Planner::plan(traits, b.input());
  RC_ASSERT(plan.covers(b.input()));
  int updates = 0;
  for (int step = 0; step < 6; ++step) {
    const std::vector<int> before = b.kv;
    for (int& kv : b.kv) kv = std::max(0, kv + *rc::gen::element(0, 0, 1, 1, 2, 17, -1, -20));
    if (!plan.covers(b.input())) {
      b.kv = before;
      continue;
    }
    ++updates;
    plan.update(b.input());
    verify(plan);
    const Reached reached = reached_by(plan);
    for (int r = 0; r < requests; ++r)
      for (int i = 0; i < b.qo[r]; ++i)
        for (int t = 0; t < b.kv[r]; ++t) {
          const int n = reached.at(b.qo_indptr[r] + i, 1, t);
          RC_ASSERT(n <= 1);
          if (sees(keys, window_left, b.qo[r], b.kv[r], i, t)) RC_ASSERT(n == 1);
        }
    const Plan fresh = Planner::plan(traits, b.input());
    const auto rows = [](const Plan& p) {
      const auto& h = p.impl().header();
      return std::string(section<char>(p.impl().bytes.data(), h.rows),
                         static_cast<size_t>(h.rows.count) * sizeof(PlanRow));
    };
    RC_ASSERT(rows(plan) == rows(fresh));
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    plan.upload(workspace);
    const auto& h = *static_cast<const PlanHeader*>(workspace.data());
    for (int r = 0; r < requests; ++r) {
      RC_ASSERT(section<int>(workspace.data(), h.kv_len)[r] == b.kv[r]);
      if (form == KvForm::paged)
        for (int page = b.kv_indptr[r]; page < b.kv_indptr[r + 1]; ++page)
          RC_ASSERT(section<int>(workspace.data(), h.page_indices)[page] == b.page_ids[page]);
    }
  }
  RC_TAG(updates > 0);
}

TEST(Plan, AnEmptyOneRefusesEverything) {
  Plan plan;
  Workspace workspace(Device::cpu(), 64);
  Batch b;
  EXPECT_EQ(code_of([&] { (void)plan.workspace_bytes(); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { plan.upload(workspace); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)plan.covers(b.input()); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { plan.update(b.input()); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)plan.to_string(); }), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace weft::test
