// How evenly balanced deals, against the bound that no plan beats; the printed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "tests/attention/plan/plan_support.h"

namespace weft::test {
namespace {

using namespace attention;

// Whose costs and granule: made-up ones, or those of the kernels of this library.
enum class Costs { whole_tokens, one_head, avx2, avx512 };
std::string name_of(Costs costs) {
  constexpr const char* kNames[] = {"whole_tokens", "one_head", "avx2", "avx512"};
  return kNames[static_cast<int>(costs)];
}
KernelTraits traits_of(Costs costs) {
  if (costs == Costs::whole_tokens) return cpu_like_traits();
  if (costs == Costs::one_head) return per_head_traits();
  const AttentionSpec spec{
      .q_dtype = DType::bf16, .kv_dtype = DType::bf16, .o_dtype = DType::bf16, .head_dim_qk = 128, .head_dim_vo = 128};
  return cpu_traits(spec, costs == Costs::avx2 ? Isa::avx2 : Isa::avx512);
}

class Makespan : public ::testing::TestWithParam<std::tuple<Lengths, Costs>> {};

TEST_P(Makespan, IsWithinATenthOfTheLowerBoundOnOneTo264Workers) {
  const auto [lengths, costs] = GetParam();
  const KernelTraits traits = traits_of(costs);
  std::mt19937 random(20);
  for (const int requests : {16, 23, 64, 256}) {
    Batch b;
    b.qo.assign(static_cast<size_t>(requests), 1);
    b.kv = draw_lengths(lengths, requests, random);
    double total = 0;
    for (const int kv : b.kv)
      total += 8 * (traits.classes[0].item + 4 * traits.classes[0].row +
                    kv * (traits.classes[0].token + 4 * traits.classes[0].row_token));
    for (int workers = 1; workers <= 264; workers += workers < 24 || workers > 256 ? 1 : 7) {
      b.workers = workers;
      const Plan plan = Planner::plan(traits, b.input());
      ASSERT_LE(plan.makespan(), 1.10 * plan.lower_bound())
          << name_of(lengths) << ", " << requests << " requests, " << workers << " workers";
      ASSERT_GE(plan.lower_bound(), total / workers * (1 - 1e-12));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, Makespan,
    ::testing::Combine(::testing::Values(Lengths::constant, Lengths::uniform, Lengths::zipf, Lengths::one_long),
                       ::testing::Values(Costs::whole_tokens, Costs::one_head, Costs::avx2, Costs::avx512)),
    [](const auto& test) { return name_of(std::get<0>(test.param)) + "_" + name_of(std::get<1>(test.param)); });

// Of prompts and single tokens: what a worker has is the same, and every other one begins with its single tokens.
TEST(Balanced, EveryOtherWorkerBeginsWithTheTilesOfTheFewestRows) {
  KernelTraits traits = per_head_traits(Keys::causal);
  traits.thresholds.dealt_at_once = 4;
  Batch b;
  b.qo = {1, 900, 1, 1};
  b.kv = {700, 900, 800, 900};
  b.workers = 4;
  const auto items_of = [&](bool alternates) {
    traits.thresholds.alternates = alternates;
    const Plan plan = Planner::plan(traits, b.input());
    verify(plan);
    const char* base = plan.impl().bytes.data();
    const PlanHeader& h = plan.impl().header();
    const int* indptr = section<int>(base, h.worker_indptr);
    std::vector<std::vector<std::pair<bool, int>>> of_workers;  // whether an item has few rows, and its keys
    for (int w = 0; w < b.workers; ++w) {
      auto& of_worker = of_workers.emplace_back();
      for (int i = indptr[w]; i < indptr[w + 1]; ++i) {
        const WorkItem& item = section<WorkItem>(base, h.items)[i];
        const Unit& unit = section<Unit>(base, h.units)[item.unit];
        of_worker.emplace_back(unit.tile_kind == TileKind::direct, item.kv_end - item.kv_begin);
      }
    }
    return of_workers;
  };
  auto dealt = items_of(false), alternating = items_of(true);
  for (size_t w = 0; w < dealt.size(); ++w) {
    const auto has_few = [](const auto& item) { return item.first; };
    const auto has_many = [](const auto& item) { return !item.first; };
    ASSERT_TRUE(std::any_of(dealt[w].begin(), dealt[w].end(), has_few)) << w;
    ASSERT_TRUE(std::any_of(dealt[w].begin(), dealt[w].end(), has_many)) << w;
    EXPECT_TRUE(w % 2 == 1 ? std::is_partitioned(alternating[w].begin(), alternating[w].end(), has_few)
                           : std::is_partitioned(alternating[w].begin(), alternating[w].end(), has_many))
        << w;
    std::sort(dealt[w].begin(), dealt[w].end());
    std::sort(alternating[w].begin(), alternating[w].end());
    EXPECT_EQ(dealt[w], alternating[w]) << w;
  }
}

TEST(Balanced, NoWorkerSharesMoreThanTwoUnits) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Batch b;
    const int requests = 1 + static_cast<int>(random() % 20);
    for (int r = 0; r < requests; ++r) {
      b.qo.push_back(random() % 3 == 0 ? 1 + static_cast<int>(random() % 300) : 1);
      b.kv.push_back(b.qo.back() + static_cast<int>(random() % 5000));
    }
    b.workers = 1 + static_cast<int>(random() % 100);
    const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
    verify(plan);
    const PlanHeader& h = plan.impl().header();
    const int* indptr = section<int>(plan.impl().bytes.data(), h.worker_indptr);
    const WorkItem* items = section<WorkItem>(plan.impl().bytes.data(), h.items);
    for (int w = 0; w < b.workers; ++w) {
      int shared = 0;
      for (int i = indptr[w]; i < indptr[w + 1]; ++i) shared += items[i].partial >= 0;
      EXPECT_LE(shared, 2);
    }
    EXPECT_LE(plan.num_partials(), 2 * (b.workers - 1));
  }
}

// One head an item, or as many as a worker takes whole: the same cuts, and as many items as requests and workers ask
// for.
TEST(Balanced, HeadsThatAWorkerTakesWholeAreOneItem) {
  std::mt19937 random(5);
  KernelTraits joined = per_head_traits(), single = joined;
  single.walks_heads = false;
  for (int round = 0; round < 100; ++round) {
    Batch b;
    const int requests = 1 + static_cast<int>(random() % 40);
    for (int r = 0; r < requests; ++r) {
      b.qo.push_back(1);
      b.kv.push_back(random() % 8 == 0 ? 0 : static_cast<int>(random() % 5000));
    }
    b.num_kv_heads = b.num_qo_heads = 8;
    b.workers = 1 + static_cast<int>(random() % 70);
    const Plan plan = Planner::plan(joined, b.input()), heads = Planner::plan(single, b.input());
    verify(plan);
    EXPECT_NEAR(plan.makespan(), heads.makespan(), 1e-6 * heads.makespan());
    EXPECT_EQ(plan.num_partials(), heads.num_partials());
    EXPECT_EQ(plan.impl().header().merge_groups.count, heads.impl().header().merge_groups.count);
    EXPECT_LE(plan.num_items(), heads.num_items());
    EXPECT_LE(plan.num_items(), requests + 3 * b.workers);
  }
  Batch b;
  b.qo = {1};
  b.kv = {100};
  b.num_kv_heads = b.num_qo_heads = 8;
  b.workers = 1;
  EXPECT_EQ(Planner::plan(joined, b.input()).num_items(), 1);
  b.mode = PlanMode::even;  // a kernel makes the same
  EXPECT_EQ(Planner::plan(joined, b.input()).num_items(), 8);
}

TEST(Balanced, UnitsThatAreAlikeHaveNoMorePartsThanWorkersAskFor) {
  Batch b;
  b.qo.assign(16, 1);
  b.kv.assign(16, 8192);
  b.num_kv_heads = b.num_qo_heads = 8;
  b.workers = 264;  // two for each of 128 units, and 8 more
  const Plan plan = Planner::plan(per_head_traits(), b.input());
  verify(plan);
  EXPECT_EQ(plan.num_partials(), 256);
  EXPECT_LT(plan.makespan(), 1.02 * plan.lower_bound());
}

TEST(Balanced, PrefillTilesAreDealtWholeAndTheirNeighboursRunAtTheSameTime) {
  Batch b;
  b.qo = {8192};
  b.kv = {8192};
  b.workers = 16;
  const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
  verify(plan);
  EXPECT_EQ(plan.num_partials(), 0);  // 2048 tiles level 16 workers without a cut
  EXPECT_LE(plan.makespan(), 1.02 * plan.lower_bound());
  const PlanHeader& h = plan.impl().header();
  const char* base = plan.impl().bytes.data();
  const int* indptr = section<int>(base, h.worker_indptr);
  const WorkItem* items = section<WorkItem>(base, h.items);
  const Unit* units = section<Unit>(base, h.units);
  // A wave of 16 workers reads at most two KV heads.
  for (int step = 0; step < 100; ++step) {
    std::set<int> heads;
    for (int w = 0; w < 16; ++w) heads.insert(units[items[indptr[w] + step].unit].kv_head_begin);
    EXPECT_LE(heads.size(), 2u) << "step " << step;
  }
}

TEST(Balanced, OnlyTheRemainderOfAPrefillIsCut) {
  Batch b;
  b.qo = {320};  // 10 tiles of 32 tokens, 8 heads: 80 units
  b.kv = {4096};
  b.workers = 24;
  const Plan plan = Planner::plan(cpu_like_traits(), b.input());
  verify(plan);
  EXPECT_LE(plan.makespan(), 1.10 * plan.lower_bound());
  EXPECT_GT(plan.num_partials(), 0);
  EXPECT_LE(plan.num_partials(), 2 * 23);
}

// 8 heads of 40 + 6 * 4 = 64 a token, and 332 an item.
TEST(Balanced, NoShareIsCutBelowWhatMergingCosts) {
  KernelTraits traits = per_head_traits();
  const auto chunks = [&](int kv, double least) {
    traits.thresholds.least_share = least;
    Batch b;
    b.qo = {1};
    b.kv = {kv};
    b.workers = 264;
    const Plan plan = Planner::plan(traits, b.input());
    verify(plan);
    return plan.num_items() / 8;
  };
  EXPECT_EQ(chunks(1024, 0), 16);  // of one granule
  EXPECT_EQ(chunks(1024, 332 + 64 * 128), 8);
  EXPECT_EQ(chunks(1024, 1e9), 1);
  EXPECT_EQ(chunks(40, 1e9), 1);
}

TEST(Balanced, AFloorOfSharesKeepsNoWorkerLongerThanTheLargestUnit) {
  KernelTraits traits = per_head_traits();
  traits.thresholds.least_share = 1e9;
  Batch b;
  b.qo = {1, 1, 1};
  b.kv = {64, 1024, 64};
  b.workers = 264;
  const Plan plan = Planner::plan(traits, b.input());
  verify(plan);
  EXPECT_LE(plan.makespan(), 332 + 64 * 1024);
}

TEST(Balanced, MixedPrefillAndDecodeIsLevel) {
  Batch b;
  b.qo.assign(65, 1);
  b.kv.assign(65, 2000);
  b.qo[30] = 4096;
  b.kv[30] = 4096;
  for (const int workers : {1, 2, 7, 32, 132}) {
    b.workers = workers;
    const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
    verify(plan);
    EXPECT_LE(plan.makespan(), 1.10 * plan.lower_bound()) << workers;
  }
}

TEST(Balanced, NarrowsWholeTokensOnlyWhereWorkersAreMany) {
  const auto widest = [](int workers) {
    Batch b;
    b.qo = {1, 1};
    b.kv = {1024, 1024};
    b.workers = workers;
    const Plan plan = Planner::plan(cpu_like_traits(), b.input());
    const Unit& unit = section<Unit>(plan.impl().bytes.data(), plan.impl().header().units)[0];
    return unit.kv_head_end - unit.kv_head_begin;
  };
  EXPECT_EQ(widest(1), 8);
  EXPECT_EQ(widest(2), 8);
  EXPECT_EQ(widest(4), 4);
  EXPECT_EQ(widest(64), 1);
}

TEST(Even, IsNearlyLevelAndCutsAtMostOnceAWorker) {
  std::mt19937 random(4);
  for (const Lengths kind : {Lengths::constant, Lengths::uniform, Lengths::zipf, Lengths::one_long})
    for (const int workers : {1, 4, 33, 132, 264}) {
      Batch b;
      b.kv = draw_lengths(kind, 64, random);
      b.qo.assign(64, 1);
      b.workers = workers;
      b.mode = PlanMode::even;
      const Plan plan = Planner::plan(per_head_traits(), b.input());
      verify(plan);
      EXPECT_LE(plan.makespan(), 1.25 * plan.lower_bound()) << name_of(kind) << " on " << workers;
      EXPECT_LE(plan.num_items(), 64 * 8 + workers - 1);
    }
}

TEST(Even, TakesRequestsOfOneTileThatAreAlike) {
  const auto refused = [](ErrorCode code, const char* says, Batch b) {
    b.mode = PlanMode::even;
    try {
      (void)Planner::plan(per_head_traits(), b.input());
      ADD_FAILURE() << says << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  Batch b;
  b.qo = {1, 2};
  b.kv = {100, 100};
  refused(ErrorCode::invalid_argument, "request 1 has 2 query tokens, request 0 has 1", b);
  b.qo = {33, 33};  // of 4 rows each: one more than the largest tile
  refused(ErrorCode::invalid_argument, "33 query tokens need several tiles", b);
}

TEST(Paper, ChunksHaveOneSizeAndTheLargestComeFirst) {
  Batch b;
  b.qo = {1, 1, 1};
  b.kv = {5000, 300, 1000};
  b.workers = 8;
  b.mode = PlanMode::paper;
  const Plan plan = Planner::plan(per_head_traits(), b.input());
  verify(plan);
  const int chunk = (6300 * 8 / 8 + 63) / 64 * 64;  // L = sum of lengths / workers, to the granule
  const PlanHeader& h = plan.impl().header();
  const int* indptr = section<int>(plan.impl().bytes.data(), h.worker_indptr);
  const WorkItem* items = section<WorkItem>(plan.impl().bytes.data(), h.items);
  const Unit* units = section<Unit>(plan.impl().bytes.data(), h.units);
  for (int w = 0; w < b.workers; ++w) {
    int previous = chunk;
    for (int i = indptr[w]; i < indptr[w + 1]; ++i) {
      const int length = std::min(items[i].kv_end, b.kv[units[items[i].unit].page_list]) - items[i].kv_begin;
      EXPECT_LE(length, previous);
      previous = length;
    }
  }
}

// The chunks of each request, in units: (rows, heads) -> borders.
using Chunks = std::map<std::tuple<int, int, int, TileKind>, std::set<std::pair<int, int>>>;
Chunks chunks_of(const Plan& plan, int request) {
  Chunks chunks;
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  for (long long i = 0; i < h.items.count; ++i) {
    const WorkItem& item = section<WorkItem>(base, h.items)[i];
    const Unit& unit = section<Unit>(base, h.units)[item.unit];
    const PlanRow* rows = section<PlanRow>(base, h.rows);
    if (rows[unit.row_begin].request != request) continue;
    chunks[{rows[unit.row_begin].idx, unit.row_end - unit.row_begin, unit.kv_head_begin, unit.tile_kind}].insert(
        {item.kv_begin, item.kv_end});
  }
  return chunks;
}

TEST(FixedSplit, ARequestHasTheSameChunksAloneAndInAnyBatchOnAnyWorkers) {
  std::mt19937 random(5);
  for (const Keys keys : {Keys::all, Keys::causal, Keys::window, Keys::sink_and_window})
    for (int round = 0; round < 10; ++round) {
      Batch b;
      b.mode = PlanMode::fixed_split;
      b.fixed_split_size = 256;
      b.scalars = scalars_of(keys, 500);
      for (int r = 0; r < 9; ++r) {
        b.qo.push_back(1 + static_cast<int>(random() % 60));
        b.kv.push_back(static_cast<int>(random() % 3000));
      }
      b.workers = 1 + static_cast<int>(random() % 60);
      const Plan together = Planner::plan(cpu_like_traits(keys), b.input());
      for (int r = 0; r < 9; ++r) {
        Batch alone = b;
        alone.qo = {b.qo[r]};
        alone.kv = {b.kv[r]};
        alone.workers = 3;
        EXPECT_EQ(chunks_of(together, r), chunks_of(Planner::plan(cpu_like_traits(keys), alone.input()), 0));
      }
    }
}

TEST(Balanced, ARequestsChunksDoDependOnTheBatch) {
  Batch b;
  b.qo = {1, 1};
  b.kv = {3000, 5000};
  Batch alone = b;
  alone.qo = {1};
  alone.kv = {3000};
  EXPECT_NE(chunks_of(Planner::plan(cpu_like_traits(), b.input()), 0),
            chunks_of(Planner::plan(cpu_like_traits(), alone.input()), 0));
}

TEST(Print, TheTableNamesEveryItemAndTheDrawingIsComplete) {
  Batch b;
  b.qo = {1, 1, 64};
  b.kv = {4096, 100, 512};
  b.workers = 3;
  const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
  const std::string text = plan.to_string();
  EXPECT_NE(text.find("balanced plan: 3 requests, 66 query tokens, 32/8 heads, 3 workers"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), plan.num_items() + 4);
  const std::string svg = plan.to_svg();
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  size_t titles = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++titles;
  EXPECT_EQ(titles, static_cast<size_t>(plan.num_items()));
  size_t hatched = 0;
  for (size_t at = svg.find("url(#cut)"); at != std::string::npos; at = svg.find("url(#cut)", at + 1)) ++hatched;
  EXPECT_EQ(hatched, static_cast<size_t>(plan.num_partials()));
  // Renderers that are no browser draw other colours than these in black.
  for (size_t at = svg.find("fill=\""); at != std::string::npos; at = svg.find("fill=\"", at + 1))
    EXPECT_TRUE(svg[at + 6] == '#' || svg.compare(at + 6, 5, "url(#") == 0) << svg.substr(at, 40);
  EXPECT_NE(svg.find("fill=\"#dd7e7e\" stroke=\"#992929\""), std::string::npos);  // hsl(0, 58%, 68%) and 38%
}

TEST(TileClasses, OneTileHasManyHeadsAndLongEntriesHaveOne) {
  KernelTraits traits = cpu_like_traits();
  traits.classes.resize(2);
  traits.classes[1].all_kv_heads = true;
  traits.classes[1].most_states = 6 * traits.classes[1].rows;  // of 8 heads 4: the next divisor
  traits.classes.push_back(traits.classes[1]);
  traits.classes[1].one_tile = true;
  traits.classes[2].kind = TileKind::packed;
  traits.classes[2].all_kv_heads = false;
  for (const PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split, PlanMode::no_split}) {
    Batch b;
    b.qo = {10, 100};
    b.kv = {4096, 4096};
    b.workers = 2;
    PlanInput input = b.input();
    input.mode = mode;
    input.fixed_split_size = mode == PlanMode::fixed_split ? 1024 : 0;
    const Plan plan = Planner::plan(traits, input);
    verify(plan);
    const auto& header = plan.impl().header();
    const auto* units = section<Unit>(plan.impl().bytes.data(), header.units);
    std::set<std::pair<TileKind, int>> found;  // and heads
    for (long long u = 0; u < header.units.count; ++u)
      found.insert({units[u].tile_kind, units[u].kv_head_end - units[u].kv_head_begin});
    EXPECT_EQ(found, (std::set<std::pair<TileKind, int>>{{TileKind::streamed, 4}, {TileKind::packed, 1}}))
        << to_string(mode);
  }
}

TEST(Signature, FollowsWhatPlanAndKernelAgreeIn) {
  const KernelTraits base = cpu_like_traits(Keys::window);
  std::set<uint64_t> seen{base.signature()};
  const auto differs = [&](auto change) {
    KernelTraits t = base;
    change(t);
    EXPECT_TRUE(seen.insert(t.signature()).second);
  };
  differs([](KernelTraits& t) { t.granule = 32; });
  differs([](KernelTraits& t) { t.walks_heads = true; });
  differs([](KernelTraits& t) { t.head_dim_vo = 64; });
  differs([](KernelTraits& t) { t.use_softmax = false; });
  differs([](KernelTraits& t) { t.kv_form = KvForm::ragged; });
  differs([](KernelTraits& t) { std::swap(t.classes[0].kind, t.classes[1].kind); });
  differs([](KernelTraits& t) { t.classes[1].rows = 63; });
  differs([](KernelTraits& t) { t.classes[1].one_tile = true; });
  differs([](KernelTraits& t) { t.classes[1].all_kv_heads = true; });
  differs([](KernelTraits& t) { t.classes[1].most_states = 512; });
  differs([](KernelTraits& t) { t.classes[2].item += 1; });
  differs([](KernelTraits& t) { t.classes[2].token += 1; });
  differs([](KernelTraits& t) { t.classes.pop_back(); });
  differs([](KernelTraits& t) { t.intervals[0].lower[0].scalar_sign = 1; });
  differs([](KernelTraits& t) { t.intervals[0].lower[0].scalar = "other"; });
  differs([](KernelTraits& t) { t.intervals[0].upper[0].constant = 2; });
  differs([](KernelTraits& t) { std::swap(t.intervals[0].lower, t.intervals[0].upper); });
  EXPECT_EQ(base.signature(), cpu_like_traits(Keys::window).signature());
}

TEST(Signature, IsTheSameForPlansThatAKernelRunsAlike) {
  const KernelTraits base = cpu_like_traits();
  const auto agrees = [&](auto change) {
    KernelTraits t = base;
    change(t);
    EXPECT_EQ(t.signature(), base.signature());
  };
  agrees([](KernelTraits& t) { t.thresholds = {1, 1, 1, 1, 1}; });
  agrees([](KernelTraits& t) { t.classes[0].default_workers = 264; });
  agrees([](KernelTraits& t) { std::reverse(t.classes.begin(), t.classes.end()); });
}

}  // namespace
}  // namespace weft::test
