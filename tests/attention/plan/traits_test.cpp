// The planner decides by what a kernel's traits say, and by nothing else.
#include "attention/cpu/traits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "tests/attention/plan/plan_support.h"
#include "weft/levels.h"

namespace weft::test {
namespace {

using namespace attention;

std::span<Unit> units_of(const Plan& plan) {
  const Section& units = plan.impl().header().units;
  return {section<Unit>(plan.impl().bytes.data(), units), static_cast<size_t>(units.count)};
}

// Decodes, drafts and prompts.
Batch draw_batch(std::mt19937& random) {
  Batch b;
  b.workers = 1 + static_cast<int>(random() % 9);
  const int requests = 1 + static_cast<int>(random() % 12);
  for (int r = 0; r < requests; ++r) {
    b.qo.push_back(random() % 2 == 0 ? 1 : static_cast<int>(random() % 90));
    b.kv.push_back(b.qo.back() + static_cast<int>(random() % 3000));
  }
  return b;
}

TEST(Traits, NumberTheWorkersWherePlanIsNotTold) {
  Batch b;
  b.qo = {1, 1};
  b.kv = {900, 900};
  b.workers = 0;
  KernelTraits traits = cpu_like_traits();
  for (const int workers : {1, 3, 264}) {
    for (TileClass& c : traits.classes) c.default_workers = workers;
    EXPECT_EQ(Planner::plan(traits, b.input()).num_workers(), workers);
  }
  b.workers = 7;
  EXPECT_EQ(Planner::plan(traits, b.input()).num_workers(), 7);
  const AttentionSpec spec{
      .q_dtype = DType::bf16, .kv_dtype = DType::bf16, .o_dtype = DType::bf16, .head_dim_qk = 128, .head_dim_vo = 128};
  for (const TileClass& c : cpu_traits(spec, Isa::avx2).classes)
    EXPECT_EQ(c.default_workers, WorkerTeam::shared().num_workers());
}

// Kinds of the plan, or of any plan within its bounds: the kernel with those tiles is what runs it.
TEST(Traits, NumberTheWorkersByTheTilesOfThePlan) {
  KernelTraits traits = cpu_like_traits();
  traits.classes[0].default_workers = 8;
  traits.classes[1].default_workers = 5;
  traits.classes[2].default_workers = 4;
  Batch b;
  b.workers = 0;
  b.kv = {900, 900};
  const auto workers = [&](std::vector<int> qo, const PlanBounds* bounds = nullptr) {
    b.qo = std::move(qo);
    b.bounds = bounds;
    return Planner::plan(traits, b.input()).num_workers();
  };
  EXPECT_EQ(workers({1, 4}), 8);
  EXPECT_EQ(workers({1, 16}), 5);
  EXPECT_EQ(workers({1, 100}), 4);
  EXPECT_EQ(workers({100, 100}), 4);
  EXPECT_EQ(workers({0, 0}), 8);
  PlanBounds bounds{.max_requests = 2,
                    .max_rows = 200,
                    .max_qo_len = 1,
                    .max_pages = 200,
                    .max_kv_len = 900,
                    .page_size = 16,
                    .num_qo_heads = 32,
                    .num_kv_heads = 8,
                    .workers = 8};
  EXPECT_EQ(workers({1, 1}, &bounds), 8);
  bounds.max_qo_len = 0;
  EXPECT_EQ(workers({1, 1}, &bounds), 4);
  bounds.workers = 3;
  EXPECT_EQ(workers({1, 1}, &bounds), 3);
  b.workers = 4;
  EXPECT_THROW(workers({1, 1}, &bounds), Error);
}

TEST(Traits, SayHowLargeASliverIsWorthCutting) {
  Batch b;
  b.qo = {1, 1};
  b.kv = {501000, 499000};  // a five-hundredth more than half, and less
  b.workers = 2;
  KernelTraits traits = cpu_like_traits();
  const auto partials = [&](double sliver) {
    traits.thresholds.least_sliver = sliver;
    return Planner::plan(traits, b.input()).num_partials();
  };
  EXPECT_GT(partials(1. / 1000), 0);
  EXPECT_EQ(partials(1. / 256), 0);
}

TEST(Traits, SayHowFarFromLevelTheFewestChunksAreKept) {
  Batch b;
  b.qo = {1, 1, 1};
  b.kv = {16384, 16384, 16384};
  b.workers = 8;
  KernelTraits traits = cpu_like_traits();
  const auto partials = [&](double few) {
    traits.thresholds.few_chunks = few;
    return Planner::plan(traits, b.input()).num_partials();
  };
  EXPECT_EQ(partials(0.4), 6);  // six workers have half of a request each: a third more than an eighth of all
  EXPECT_GT(partials(0.3), 6);
}

TEST(Traits, SayHowManyGranulesAWorkerNeeds) {
  Batch b;
  b.qo = {1};
  b.kv = {20 * 64};
  b.workers = 4;
  KernelTraits traits = cpu_like_traits();
  const auto heads = [&](int granules) {
    traits.thresholds.granules_per_worker = granules;
    return units_of(Planner::plan(traits, b.input()))[0].kv_head_end;
  };
  EXPECT_EQ(heads(5), 8);
  EXPECT_EQ(heads(6), 4);
  EXPECT_EQ(heads(16), 2);
  EXPECT_EQ(heads(1000), 1);
}

TEST(Traits, SayWhichDealNeedsNoCut) {
  Batch b;
  b.qo = {200};
  b.kv = {2000};
  b.workers = 3;
  b.num_kv_heads = 4;
  b.num_qo_heads = 16;
  KernelTraits traits = cpu_like_traits();
  EXPECT_GT(Planner::plan(traits, b.input()).num_partials(), 0);
  traits.thresholds.level_enough = 4;
  EXPECT_EQ(Planner::plan(traits, b.input()).num_partials(), 0);
}

// A prompt of one tile and four of 16, over 8 heads, in windows of 4 units for each of 8 workers. A worker that was
// dealt tiles in another order has a cheap one before a costly one of the same window, or a later window first.
TEST(Traits, SayHowManyTilesAreDealtAtOnce) {
  constexpr int kWorkers = 8, kAtOnce = 4;
  Batch b;
  b.qo = b.kv = {32, 512, 512, 512, 512};
  b.workers = kWorkers;
  KernelTraits traits = per_head_traits(Keys::causal);
  traits.thresholds.dealt_at_once = kAtOnce;
  const Plan plan = Planner::plan(traits, b.input());
  verify(plan);
  EXPECT_EQ(plan.num_partials(), 0);
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  const int* indptr = section<int>(base, h.worker_indptr);
  const WorkItem* items = section<WorkItem>(base, h.items);
  const std::span<Unit> units = units_of(plan);
  ASSERT_EQ(units.size(), 8u + 512u);
  const auto keys = [&](const WorkItem& item) {  // of equally many rows, what a unit costs
    return item.kv_end != kOpenEnd ? item.kv_end : item.unit < 8 ? 32 : 512;
  };
  const auto comes_first = [&](const WorkItem& one, const WorkItem& other) {
    const int window = one.unit / (kAtOnce * kWorkers), other_window = other.unit / (kAtOnce * kWorkers);
    if (window != other_window) return window < other_window;
    return keys(one) != keys(other) ? keys(one) > keys(other) : one.unit < other.unit;
  };
  std::vector<int> first;  // of each worker: together the costliest of the first window, of as costly ones in order
  for (int w = 0; w < kWorkers; ++w) {
    first.push_back(items[indptr[w]].unit);
    for (int i = indptr[w] + 1; i < indptr[w + 1]; ++i)
      EXPECT_TRUE(comes_first(items[i - 1], items[i]))
          << "worker " << w << ", units " << items[i - 1].unit << ", " << items[i].unit;
  }
  EXPECT_EQ(first, (std::vector<int>{8, 24, 9, 25, 10, 26, 11, 27}));
}

// What comes last levels the workers, and none has to be cut.
TEST(Traits, ThatDealTheCostliestFirstLeaveLessToCut) {
  Batch b;
  b.qo = {32, 32, 32, 512};
  b.kv = {32, 32, 32, 512};
  b.workers = 24;
  KernelTraits traits = per_head_traits(Keys::causal);
  traits.thresholds.level_enough = 1.1;
  const int cut = Planner::plan(traits, b.input()).num_partials();
  traits.thresholds.dealt_at_once = 4;
  const Plan plan = Planner::plan(traits, b.input());
  verify(plan);
  EXPECT_EQ(plan.num_partials(), 0);
  EXPECT_GT(cut, 0);
}

// Decode requests over pages of 16 tokens: `root` pages shared by all, `branch` by each half, `own` each.
struct Tree {
  std::vector<int32_t> qo_indptr{0}, indptr{0}, ids, last_page_len;
  PlanInput input{.num_qo_heads = 32, .num_kv_heads = 8, .num_workers = 2};
  Tree(int requests, int root, int branch, int own) {
    for (int r = 0; r < requests; ++r) {
      const auto add = [&](int first, int n) {
        for (int i = 0; i < n; ++i) ids.push_back(first + i);
      };
      add(0, root);
      add(root + 2 * r / requests * branch, branch);
      add(root + 2 * branch + r * own, own);
      indptr.push_back(static_cast<int32_t>(ids.size()));
      qo_indptr.push_back(r + 1);
      last_page_len.push_back(16);
    }
    input.qo_indptr = qo_indptr;
    input.pages = {16, root + 2 * branch + requests * own, indptr, ids, last_page_len};
  }
};

TEST(Traits, SayWhatSharedLevelsMustSaveAndCost) {
  const Tree much(16, 128, 0, 8), little(16, 16, 0, 160);
  KernelTraits traits = cpu_like_traits();
  const auto shares = [&](const Tree& tree) { return !Planner::shared_levels(traits, tree.input).empty(); };
  EXPECT_TRUE(shares(much));
  EXPECT_FALSE(shares(little));
  traits.thresholds.shared_cost_at_most = 1;
  EXPECT_TRUE(shares(little));
  traits.thresholds.shared_cost_at_most = 0.01;
  EXPECT_FALSE(shares(much));
  traits.thresholds.shared_cost_at_most = 1;
  traits.thresholds.least_saving = 1e9;
  EXPECT_FALSE(shares(much));
  traits.thresholds.least_saving = 0;
  EXPECT_TRUE(shares(much));
  traits.thresholds.merge_row = 1e6;
  EXPECT_FALSE(shares(much));
}

TEST(Traits, SayHowDeepPrefixesAreSearched) {
  const Tree tree(16, 512, 512, 8);
  KernelTraits traits = cpu_like_traits();
  EXPECT_EQ(Planner::shared_levels(traits, tree.input).num_levels(), 3);
  traits.thresholds.prefix_tree_depth = 1;
  EXPECT_EQ(Planner::shared_levels(traits, tree.input).num_levels(), 2);
}

// The kernels' own, whose streamed and packed classes have as many rows, and made-up ones.
std::vector<KernelTraits> several_traits() {
  AttentionSpec spec{
      .q_dtype = DType::bf16, .kv_dtype = DType::bf16, .o_dtype = DType::bf16, .head_dim_qk = 128, .head_dim_vo = 128};
  return {cpu_like_traits(), cpu_traits(spec, Isa::avx2), cpu_traits(spec, Isa::avx512)};
}

TEST(Traits, ListClassesInAnyOrder) {
  const PlanBounds bounds{.max_requests = 8,
                          .max_rows = 300,
                          .max_pages = 2000,
                          .max_levels = 3,
                          .max_kv_len = 4000,
                          .page_size = 16,
                          .num_qo_heads = 32,
                          .num_kv_heads = 8,
                          .workers = 4};
  std::mt19937 random(9);
  for (const KernelTraits& listed : several_traits()) {
    KernelTraits other = listed;
    const Tree tree(16, 128, 0, 8);
    std::set<TileKind> used;
    for (int round = 0; round < 40; ++round) {
      std::shuffle(other.classes.begin(), other.classes.end(), random);
      Batch b = draw_batch(random);
      const Plan plan = Planner::plan(listed, b.input());
      for (const Unit& unit : units_of(plan)) used.insert(unit.tile_kind);
      ASSERT_EQ(bytes_of(plan), bytes_of(Planner::plan(other, b.input())));
      ASSERT_EQ(plan.to_string(), Planner::plan(other, b.input()).to_string());
      ASSERT_EQ(Planner::workspace_bytes(listed, bounds), Planner::workspace_bytes(other, bounds));
      ASSERT_EQ(Planner::shared_levels(listed, tree.input).num_levels(),
                Planner::shared_levels(other, tree.input).num_levels());
    }
    EXPECT_EQ(used.size(), 3u);
  }
}

TEST(Traits, NameClassesAsTheirKernelLikes) {
  const auto next = [](TileKind kind) { return static_cast<TileKind>((static_cast<int>(kind) + 1) % 3); };
  std::mt19937 random(10);
  for (const KernelTraits& named : several_traits()) {
    KernelTraits renamed = named;
    for (TileClass& c : renamed.classes) c.kind = next(c.kind);
    for (int round = 0; round < 20; ++round) {
      Batch b = draw_batch(random);
      Plan plan = Planner::plan(named, b.input());
      const Plan other = Planner::plan(renamed, b.input());
      verify(other);
      ASSERT_EQ(plan.makespan(), other.makespan());
      // But for the names and the signature, byte for byte.
      for (Unit& unit : units_of(plan)) unit.tile_kind = next(unit.tile_kind);
      ASSERT_NE(plan.signature(), other.signature());
      auto& header = *reinterpret_cast<PlanHeader*>(const_cast<char*>(plan.impl().bytes.data()));
      header.signature = other.signature();
      header.tile_kinds = other.impl().header().tile_kinds;
      ASSERT_EQ(bytes_of(plan), bytes_of(other));
    }
  }
}

TEST(Traits, NamesOfClassesArePrintedAndVerified) {
  Batch b;
  b.qo = {1, 16, 100};
  b.kv = {500, 500, 500};
  const Plan plan = Planner::plan(cpu_like_traits(), b.input());
  for (const char* name : {"direct", "streamed", "packed"}) {
    EXPECT_NE(plan.to_string().find(name), std::string::npos) << plan.to_string();
    EXPECT_NE(plan.to_svg().find(name), std::string::npos);
  }
  units_of(plan)[1].tile_kind = TileKind::direct;
  try {
    verify(plan);
    ADD_FAILURE() << "a unit of 64 rows passes as direct";
  } catch (const InternalError& broken) {
    EXPECT_NE(std::string(broken.what()).find("in a direct tile of 16"), std::string::npos) << broken.what();
  }
}

TEST(Traits, ThatSayTooLittleAreRefused) {
  Batch b;
  b.qo = {1};
  b.kv = {100};
  const auto refused = [&](auto change) {
    KernelTraits traits = cpu_like_traits();
    change(traits);
    EXPECT_THROW(Planner::plan(traits, b.input()), InternalError);
  };
  refused([](KernelTraits& t) { t.classes[1].default_workers = 0; });
  refused([](KernelTraits& t) { t.thresholds = {}; });
  refused([](KernelTraits& t) { t.thresholds.prefix_tree_depth = 0; });
  refused([](KernelTraits& t) { t.thresholds.least_sliver = -1; });
  refused([](KernelTraits& t) { t.thresholds.few_chunks = -1; });
  refused([](KernelTraits& t) { t.thresholds.dealt_at_once = -1; });
  refused([](KernelTraits& t) { t.classes.clear(); });
  refused([](KernelTraits& t) { t.classes[1].rows = 0; });
  refused([](KernelTraits& t) { t.classes[1].kind = t.classes[0].kind; });
  refused([](KernelTraits& t) { t.classes[1].rows = t.classes[2].rows; });  // which of the two?
  refused([](KernelTraits& t) { t.classes[2].one_tile = true; });           // and longer entries?
}

}  // namespace
}  // namespace weft::test
