// Plans of several levels: every visible pair once, one merge, and the same plan for longer requests.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/attention/plan/plan_support.h"
#include "tests/attention/random_levels.h"

namespace weft::test {
namespace {

using namespace attention;
using weft::testing::LevelOptions;
using weft::testing::RandomLevels;

struct LevelsCase {
  KernelTraits traits;
  Keys keys;
  int window_left;
  LevelOptions options;
  PlanInput input;
  std::vector<RandomLevels> levels;  // one; an input points into it
};

LevelsCase draw_levels_case() {
  LevelsCase c;
  c.keys = *rc::gen::element(Keys::all, Keys::causal, Keys::window, Keys::sink_and_window, Keys::prefix);
  c.traits = *rc::gen::arbitrary<bool>() ? cpu_like_traits(c.keys) : per_head_traits(c.keys);
  c.traits.granule = *rc::gen::element(1, 16, 64);
  c.window_left = *rc::gen::element(-1, 0, 5, 100);
  PlanInput& in = c.input;
  in.num_kv_heads = *rc::gen::element(1, 2, 3, 4);
  in.num_qo_heads = in.num_kv_heads * *rc::gen::element(1, 3, 4, 40, 200);
  in.num_workers = *rc::gen::element(1, 2, 3, 7, 16, 61);
  in.mode = *rc::gen::element(PlanMode::balanced, PlanMode::paper, PlanMode::fixed_split, PlanMode::no_split);
  if (in.mode == PlanMode::fixed_split) in.fixed_split_size = c.traits.granule * *rc::gen::element(1, 2);
  in.scalars = scalars_of(c.keys, c.window_left);
  c.options = {.num_levels = *rc::gen::element(1, 2, 2, 3, 8),
               .requests = *rc::gen::inRange(0, 9),
               .page_size = *rc::gen::element(1, 5, 16),
               .max_qo_len = *rc::gen::element(3, 60),
               .max_pages = *rc::gen::element(3, 20),
               .border = std::max(1, in.fixed_split_size),
               .shuffled = *rc::gen::arbitrary<bool>()};
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  c.levels.emplace_back(c.options, random);
  c.levels[0].give(in);
  return c;
}

void assert_every_visible_pair_once(const LevelsCase& c, const Plan& plan) {
  const Reached reached = reached_by(plan);
  const std::vector<int32_t>& qo_indptr = c.levels[0].qo_indptr();
  for (size_t r = 0; r + 1 < qo_indptr.size(); ++r) {
    const int qo_len = qo_indptr[r + 1] - qo_indptr[r], kv_len = c.levels[0].kv_len()[r];
    for (int i = 0; i < qo_len; ++i)
      for (int head = 0; head < c.input.num_kv_heads; ++head)
        for (int t = 0; t < kv_len; ++t) {
          const int n = reached.at(qo_indptr[r] + i, head, t);
          RC_ASSERT(n <= 1);
          if (sees(c.keys, c.window_left, qo_len, kv_len, i, t)) RC_ASSERT(n == 1);
        }
  }
}

RC_GTEST_PROP(Levels, every_visible_pair_is_attended_exactly_once, ()) {
  const LevelsCase c = draw_levels_case();
  const Plan plan = Planner::plan(c.traits, c.input);
  verify(plan);
  assert_every_visible_pair_once(c, plan);
}

RC_GTEST_PROP(Levels, the_makespan_is_not_below_the_bound, ()) {
  const LevelsCase c = draw_levels_case();
  const Plan plan = Planner::plan(c.traits, c.input);
  RC_ASSERT(plan.makespan() >= plan.lower_bound() * (1 - 1e-12));
  RC_ASSERT(plan.to_string().find("lower bound") != std::string::npos);
  RC_ASSERT(plan.to_svg().find("</svg>") != std::string::npos);
}

RC_GTEST_PROP(Levels, an_updated_plan_attends_what_a_fresh_one_attends, ()) {
  LevelsCase c = draw_levels_case();
  Plan plan = Planner::plan(c.traits, c.input);
  RC_ASSERT(plan.covers(c.input));
  bool updated = false;
  for (const int step : {1, 2, 1, -1, -3}) {
    RandomLevels before = c.levels[0];
    if (!c.levels[0].grow(step)) continue;
    c.levels[0].give(c.input);
    if (!plan.covers(c.input)) {
      c.levels[0] = before;
      continue;
    }
    updated = true;
    plan.update(c.input);
    verify(plan);
    assert_every_visible_pair_once(c, plan);
  }
  RC_TAG(updated);
}

RC_GTEST_PROP(Levels, no_plan_within_bounds_needs_more, ()) {
  LevelsCase c = draw_levels_case();
  const PlanBounds bounds{.max_requests = c.options.requests,
                          .max_rows = c.levels[0].qo_indptr().back(),
                          .max_pages = c.levels[0].num_page_ids(),
                          .max_levels = c.options.num_levels,
                          .max_kv_len = c.options.num_levels * c.options.max_pages * c.options.page_size,
                          .page_size = c.options.page_size,
                          .num_qo_heads = c.input.num_qo_heads,
                          .num_kv_heads = c.input.num_kv_heads,
                          .workers = c.input.num_workers,
                          .mode = c.input.mode,
                          .fixed_split_size = c.input.fixed_split_size};
  const size_t most = Planner::workspace_bytes(c.traits, bounds);
  RC_ASSERT(Planner::plan(c.traits, c.input).workspace_bytes() <= most);
  c.input.bounds = &bounds;
  c.input.borrow_page_ids = true;
  const Plan plan = Planner::plan(c.traits, c.input);
  verify(plan);
  RC_ASSERT(plan.workspace_bytes() == most);
}

// Each cut of a shared unit is a source of every row that shares it.
TEST(Levels, BoundsHoldASharedPrefixThatManyWorkersCut) {
  constexpr int kRows = 16, kPages = 2000, kWorkers = 32;
  std::vector<int32_t> rows, shared(kPages), own, last(kRows, 5);
  for (int r = 0; r <= kRows; ++r) rows.push_back(r);
  for (int page = 0; page < kPages; ++page) shared[static_cast<size_t>(page)] = page;
  for (int r = 0; r < kRows; ++r) own.push_back(kPages + r);
  const std::vector<int32_t> all{0, kRows}, shared_indptr{0, kPages}, full{16};
  const std::vector<Level> levels{{all, {16, kPages + kRows, shared_indptr, shared, full}},
                                  {rows, {16, kPages + kRows, rows, own, last}}};
  const PlanBounds bounds{.max_requests = kRows,
                          .max_rows = kRows,
                          .max_pages = kPages + kRows,
                          .max_levels = 2,
                          .max_kv_len = 16 * (kPages + 1),
                          .page_size = 16,
                          .num_qo_heads = 2,
                          .num_kv_heads = 2,
                          .workers = kWorkers};
  PlanInput input{.num_qo_heads = 2, .num_kv_heads = 2, .qo_indptr = rows, .num_workers = kWorkers};
  input.levels = levels;
  input.bounds = &bounds;
  const Plan plan = Planner::plan(per_head_traits(), input);
  EXPECT_GT(plan.num_partials(), kWorkers);
  verify(plan);
}

RC_GTEST_PROP(Levels, uploads_hold_the_page_ids_of_every_level_borrowed_or_copied, ()) {
  LevelsCase c = draw_levels_case();
  const auto uploaded = [&](bool borrowed) {
    c.input.borrow_page_ids = borrowed;
    const Plan plan = Planner::plan(c.traits, c.input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    plan.upload(workspace);
    const auto& h = *static_cast<const PlanHeader*>(workspace.data());
    const int* ids = section<int>(workspace.data(), h.page_indices);
    return std::vector<int>(ids, ids + h.page_indices.count);
  };
  RC_ASSERT(uploaded(true) == uploaded(false));
  std::vector<int> all;
  for (const Level& level : c.input.levels)
    all.insert(all.end(), level.pages.kv_page_indices.begin(), level.pages.kv_page_indices.end());
  RC_ASSERT(uploaded(true) == all);
}

// 64 requests of one token behind a prefix: one item a tile of all of them reads it.
Plan shared_prefix(int prefix_pages, int suffix_pages, int requests, int workers) {
  std::vector<int32_t> all{0, requests}, each(static_cast<size_t>(requests) + 1), prefix_ids, suffix_ids,
      suffix_indptr{0}, prefix_indptr{0, prefix_pages}, prefix_last{16}, suffix_last(static_cast<size_t>(requests), 16);
  for (int i = 0; i <= requests; ++i) each[i] = i;
  for (int i = 0; i < prefix_pages; ++i) prefix_ids.push_back(i);
  for (int r = 0; r < requests; ++r) {
    for (int i = 0; i < suffix_pages; ++i) suffix_ids.push_back(prefix_pages + r * suffix_pages + i);
    suffix_indptr.push_back(static_cast<int32_t>(suffix_ids.size()));
  }
  const int64_t pool = prefix_pages + int64_t{requests} * suffix_pages;
  const std::vector<Level> levels{{all, {16, pool, prefix_indptr, prefix_ids, prefix_last}},
                                  {each, {16, pool, suffix_indptr, suffix_ids, suffix_last}}};
  PlanInput input{.num_qo_heads = 32, .num_kv_heads = 8, .num_workers = workers, .levels = levels};
  return Planner::plan(cpu_like_traits(Keys::causal), input);
}

TEST(Levels, ASharedPrefixIsReadOnceATileOfRows) {
  const Plan plan = shared_prefix(256, 8, 64, 1);
  verify(plan);
  const PlanHeader& h = plan.impl().header();
  const auto* units = section<Unit>(plan.impl().bytes.data(), h.units);
  int shared = 0;
  for (long long u = 0; u < h.units.count; ++u) shared += units[u].page_list == 0;
  EXPECT_EQ(shared, 8 * 2);  // 64 tokens of group 4 in tiles of 128 rows, a KV head each
  EXPECT_EQ(h.merge_groups.count, 64 * 8);
}

TEST(Levels, TheirMakespanIsWithinATenthOfTheLowerBound) {
  for (const int workers : {1, 2, 3, 8, 17, 64, 132, 264})
    for (const int requests : {2, 16, 64, 256}) {
      if (workers > 4 * requests) continue;  // a few granules each: where they end decides, not the planner
      const Plan plan = shared_prefix(512, 16, requests, workers);
      EXPECT_LE(plan.makespan(), 1.10 * plan.lower_bound()) << workers << " workers, " << requests << " requests";
    }
}

TEST(Levels, FixedSplitKeepsARequestsOwnTileClass) {
  // A token alone takes the smallest class, and so it must where 64 share its prefix: other classes give other bits.
  std::mt19937 random(3);
  RandomLevels levels({.num_levels = 2, .requests = 64, .max_qo_len = 1, .border = 64}, random);
  PlanInput input{
      .num_qo_heads = 8, .num_kv_heads = 2, .num_workers = 4, .mode = PlanMode::fixed_split, .fixed_split_size = 64};
  levels.give(input);
  const Plan plan = Planner::plan(cpu_like_traits(), input);
  const PlanHeader& h = plan.impl().header();
  for (long long u = 0; u < h.units.count; ++u)
    EXPECT_EQ(section<Unit>(plan.impl().bytes.data(), h.units)[u].tile_kind, TileKind::direct);
}

TEST(Levels, APlanDoesNotCoverOtherLevels) {
  std::mt19937 random(5);
  const LevelOptions options{.num_levels = 3, .requests = 6, .max_qo_len = 1};
  RandomLevels levels(options, random), others(options, random);
  PlanInput input{.num_qo_heads = 8, .num_kv_heads = 2, .num_workers = 4};
  levels.give(input);
  const Plan plan = Planner::plan(cpu_like_traits(), input);
  EXPECT_TRUE(plan.covers(input));
  PlanInput other = input;
  others.give(other);
  EXPECT_FALSE(plan.covers(other));
  levels.give(input);
  std::vector<int32_t> reversed(input.request_order.rbegin(), input.request_order.rend());
  input.request_order = reversed;
  EXPECT_FALSE(plan.covers(input));
}

// Requests that are alike but for their names: the plan's rows are numbered in its own order.
TEST(Levels, APlanDoesNotCoverAnotherOrderOfEqualRequests) {
  const std::vector<int32_t> qo_indptr{0, 1, 2, 3}, shared{0, 3}, own{0, 1, 2, 3}, order{0, 1, 2}, other{2, 0, 1};
  const std::vector<int32_t> shared_indptr{0, 4}, shared_ids{0, 1, 2, 3}, full{16}, own_indptr{0, 1, 2, 3},
      own_ids{4, 5, 6}, last{5, 5, 5};
  const std::vector<Level> levels{{shared, {16, 8, shared_indptr, shared_ids, full}},
                                  {own, {16, 8, own_indptr, own_ids, last}}};
  PlanInput input{.num_qo_heads = 8, .num_kv_heads = 2, .qo_indptr = qo_indptr, .num_workers = 4};
  input.levels = levels;
  input.request_order = order;
  const Plan plan = Planner::plan(cpu_like_traits(), input);
  EXPECT_TRUE(plan.covers(input));
  input.request_order = other;
  EXPECT_FALSE(plan.covers(input));
  Plan again = Planner::plan(cpu_like_traits(), input);
  EXPECT_TRUE(again.covers(input));
  const PlanRow* rows = section<PlanRow>(again.impl().bytes.data(), again.impl().header().rows);
  for (size_t row = 0; row < other.size(); ++row) EXPECT_EQ(rows[row].request, other[row]);
}

}  // namespace
}  // namespace weft::test
