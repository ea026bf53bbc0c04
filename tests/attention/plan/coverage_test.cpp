// What every plan promises, for random batches under every mode and every kind of interval.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/attention/plan/plan_support.h"

namespace weft::test {
namespace {

struct Case {
  KernelTraits traits;
  Batch batch;
  Keys keys;
  int window_left;
};

Case draw_case() {
  Case c;
  c.keys = *rc::gen::element(Keys::all, Keys::causal, Keys::window, Keys::sink_and_window, Keys::prefix);
  const KvForm form = *rc::gen::element(KvForm::paged, KvForm::ragged, KvForm::padded);
  c.traits = *rc::gen::arbitrary<bool>() ? cpu_like_traits(c.keys, form) : per_head_traits(c.keys, form);
  c.traits.granule = *rc::gen::element(1, 16, 24, 64);
  c.window_left = *rc::gen::element(-1, 0, 5, 100);
  Batch& b = c.batch;
  b.form = form;
  b.num_kv_heads = *rc::gen::element(1, 2, 3, 4);
  b.num_qo_heads = b.num_kv_heads * *rc::gen::element(1, 3, 4, 40, 200);
  b.page_size = *rc::gen::element(1, 5, 16);
  b.workers = *rc::gen::element(1, 2, 3, 7, 16, 61);
  b.mode =
      *rc::gen::element(PlanMode::balanced, PlanMode::paper, PlanMode::fixed_split, PlanMode::no_split, PlanMode::even);
  if (b.mode == PlanMode::fixed_split) b.fixed_split_size = c.traits.granule * *rc::gen::element(1, 2, 5);
  b.scalars = scalars_of(c.keys, c.window_left);
  const int requests = *rc::gen::inRange(0, 6);
  for (int r = 0; r < requests; ++r) {
    b.qo.push_back(b.mode == PlanMode::even ? 1 : *rc::gen::element(0, 1, 1, 1, 2, 5, 40));
    b.kv.push_back(*rc::gen::oneOf(rc::gen::inRange(0, 20), rc::gen::inRange(0, 400)));
  }
  return c;
}

RC_GTEST_PROP(Coverage, every_visible_pair_is_attended_exactly_once, ()) {
  Case c = draw_case();
  const Plan plan = Planner::plan(c.traits, c.batch.input());
  const Reached reached = reached_by(plan);
  for (size_t r = 0; r < c.batch.qo.size(); ++r)
    for (int i = 0; i < c.batch.qo[r]; ++i)
      for (int head = 0; head < c.batch.num_kv_heads; ++head)
        for (int t = 0; t < c.batch.kv[r]; ++t) {
          const int n = reached.at(c.batch.qo_indptr[r] + i, head, t);
          RC_ASSERT(n <= 1);
          if (sees(c.keys, c.window_left, c.batch.qo[r], c.batch.kv[r], i, t)) RC_ASSERT(n == 1);
        }
}

RC_GTEST_PROP(Coverage, every_plan_passes_verify, ()) {
  Case c = draw_case();
  verify(Planner::plan(c.traits, c.batch.input()));
}

RC_GTEST_PROP(Coverage, equal_input_gives_equal_bytes, ()) {
  Case c = draw_case();
  const Plan a = Planner::plan(c.traits, c.batch.input());
  Case other = draw_case();  // leaves other numbers in what the planner reuses
  (void)Planner::plan(other.traits, other.batch.input());
  RC_ASSERT(bytes_of(a) == bytes_of(Planner::plan(c.traits, c.batch.input())));
}

RC_GTEST_PROP(Coverage, the_makespan_is_the_load_of_the_busiest_worker, ()) {
  Case c = draw_case();
  const Plan plan = Planner::plan(c.traits, c.batch.input());
  using namespace attention;
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  const int group = c.batch.num_qo_heads / c.batch.num_kv_heads;
  double busiest = 0;
  for (int w = 0; w < plan.num_workers(); ++w) {
    const int* indptr = section<int>(base, h.worker_indptr);
    double load = 0;
    for (int i = indptr[w]; i < indptr[w + 1]; ++i) {
      const WorkItem& item = section<WorkItem>(base, h.items)[i];
      const Unit& unit = section<Unit>(base, h.units)[item.unit];
      const int request = section<PageList>(base, h.page_lists)[unit.page_list].request;
      const int rows = (unit.row_end - unit.row_begin) * group;
      const TileClass& tile = *c.traits.find_class(unit.tile_kind);
      int visible = 0;
      for (int t = item.kv_begin; t < std::min(item.kv_end, c.batch.kv[request]); ++t) {
        bool seen = false;
        for (int row = unit.row_begin; row < unit.row_end; ++row)
          seen = seen || sees(c.keys, c.window_left, c.batch.qo[request], c.batch.kv[request],
                              section<PlanRow>(base, h.rows)[row].idx, t);
        visible += seen;
      }
      const int walks = (rows + tile.rows - 1) / tile.rows;
      load += (unit.kv_head_end - unit.kv_head_begin) *
              (tile.row * rows + tile.item + (tile.token * walks + tile.row_token * rows) * visible);
    }
    busiest = std::max(busiest, load);
  }
  RC_ASSERT(std::abs(busiest - plan.makespan()) <= 1e-9 * busiest);
  RC_ASSERT(plan.makespan() >= plan.lower_bound() * (1 - 1e-12));
}

RC_GTEST_PROP(Coverage, a_unit_is_cut_only_where_the_mode_allows_it, ()) {
  Case c = draw_case();
  const Plan plan = Planner::plan(c.traits, c.batch.input());
  using namespace attention;
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  if (c.batch.mode == PlanMode::no_split) RC_ASSERT(plan.num_partials() == 0);
  for (long long i = 0; i < h.items.count; ++i) {
    const WorkItem& item = section<WorkItem>(base, h.items)[i];
    const Unit& unit = section<Unit>(base, h.units)[item.unit];
    const int kv_len = c.batch.kv[section<PageList>(base, h.page_lists)[unit.page_list].request];
    const int end = std::min(item.kv_end, kv_len);
    if (c.batch.mode == PlanMode::fixed_split && item.kv_end > item.kv_begin && c.keys != Keys::sink_and_window)
      RC_ASSERT(item.kv_begin / c.batch.fixed_split_size == (end - 1) / c.batch.fixed_split_size);
    if (item.kv_end == kOpenEnd) RC_ASSERT(item.kv_begin < kv_len);
  }
}

RC_GTEST_PROP(Coverage, no_part_of_a_cut_unit_is_without_a_visible_key, ()) {
  Case c = draw_case();
  if (c.batch.mode == PlanMode::even && c.keys == Keys::sink_and_window) return;  // it counts the gap
  const Plan plan = Planner::plan(c.traits, c.batch.input());
  using namespace attention;
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  for (long long i = 0; i < h.items.count; ++i) {
    const WorkItem& item = section<WorkItem>(base, h.items)[i];
    if (item.partial < 0) continue;
    const Unit& unit = section<Unit>(base, h.units)[item.unit];
    const int request = section<PageList>(base, h.page_lists)[unit.page_list].request;
    bool seen = false;
    for (int t = item.kv_begin; t < std::min(item.kv_end, c.batch.kv[request]); ++t)
      for (int row = unit.row_begin; row < unit.row_end; ++row)
        seen = seen || sees(c.keys, c.window_left, c.batch.qo[request], c.batch.kv[request],
                            section<PlanRow>(base, h.rows)[row].idx, t);
    RC_ASSERT(seen);
  }
}

TEST(Coverage, RowsThatSeeNothingStillHaveAnItem) {
  for (const PlanMode mode : {PlanMode::balanced, PlanMode::paper, PlanMode::no_split}) {
    Batch b;
    b.qo = {5, 1, 40};
    b.kv = {0, 0, 3};  // 37 queries come before the first key
    b.mode = mode;
    b.num_qo_heads = 8;
    const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), b.input());
    verify(plan);
    const auto& h = plan.impl().header();
    const auto* items = section<attention::WorkItem>(plan.impl().bytes.data(), h.items);
    EXPECT_GE(plan.num_items(), 3);
    EXPECT_EQ(items[0].kv_begin, items[0].kv_end);
  }
}

TEST(Coverage, AnEmptyBatchIsAPlanWithoutItems) {
  Batch b;
  const Plan plan = Planner::plan(cpu_like_traits(), b.input());
  verify(plan);
  EXPECT_EQ(plan.num_items(), 0);
  EXPECT_EQ(plan.makespan(), 0);
}

TEST(Coverage, EachRequestTakesTheSmallestTileThatHoldsIt) {
  using attention::TileKind;
  Batch b;
  b.qo = {1, 4, 5, 17, 600};  // times a group of 4: 4, 16, 20, 68, 2400 rows
  b.kv = {100, 100, 100, 100, 600};
  const Plan plan = Planner::plan(cpu_like_traits(), b.input());
  const auto& h = plan.impl().header();
  const auto* units = section<attention::Unit>(plan.impl().bytes.data(), h.units);
  std::vector<TileKind> kinds(b.qo.size());
  for (long long u = 0; u < h.units.count; ++u) kinds[units[u].page_list] = units[u].tile_kind;
  EXPECT_EQ(kinds,
            (std::vector{TileKind::direct, TileKind::direct, TileKind::streamed, TileKind::packed, TileKind::packed}));
}

TEST(Coverage, AnOffWindowSeesWhatNoWindowSees) {
  Batch off, none;
  off.qo = none.qo = {1, 64};
  off.kv = none.kv = {1000, 500};
  off.scalars = {{"window_left", -1}};
  const Plan with = Planner::plan(cpu_like_traits(Keys::window), off.input());
  const Plan without = Planner::plan(cpu_like_traits(Keys::causal), none.input());
  EXPECT_EQ(with.makespan(), without.makespan());
  EXPECT_EQ(with.num_items(), without.num_items());
}

TEST(Coverage, AScalarThatPlanIsNotGivenHasItsDefault) {
  Batch b;
  b.qo = {3, 1};
  b.kv = {200, 90};
  KernelTraits traits = cpu_like_traits(Keys::window);
  b.scalars = scalars_of(Keys::window, 70);
  const Reached wide = reached_by(Planner::plan(traits, b.input()));
  b.scalars = scalars_of(Keys::window, 5);
  const Reached narrow = reached_by(Planner::plan(traits, b.input()));
  ASSERT_NE(wide.count, narrow.count);
  traits.defaults = b.scalars;
  b.scalars.clear();
  EXPECT_EQ(reached_by(Planner::plan(traits, b.input())).count, narrow.count);
  b.scalars = scalars_of(Keys::window, 70);
  EXPECT_EQ(reached_by(Planner::plan(traits, b.input())).count, wide.count);
}

TEST(Coverage, AWindowCostsTheWindow) {
  Batch b;
  b.qo = {1};
  b.kv = {100000};
  b.workers = 1;
  b.scalars = {{"window_left", 127}};
  const Plan plan = Planner::plan(per_head_traits(Keys::window), b.input());
  const TileClass c = per_head_traits().classes[0];
  EXPECT_DOUBLE_EQ(plan.makespan(), 8 * (4 * c.row + c.item + 128 * (c.token + 4 * c.row_token)));
}

TEST(Coverage, OneLevelIsThePlainPlan) {
  Batch b;
  b.qo = {1, 7, 300};
  b.kv = {900, 70, 300};
  PlanInput plain = b.input(), leveled = plain;
  const Level level{plain.qo_indptr, plain.pages};
  leveled.levels = {&level, 1};
  leveled.qo_indptr = {};
  leveled.pages = {};
  EXPECT_EQ(bytes_of(Planner::plan(cpu_like_traits(), plain)), bytes_of(Planner::plan(cpu_like_traits(), leveled)));
}

TEST(Verify, FindsARecordThatIsNotItsItems) {
  using attention::ItemRecord;
  Batch b;
  b.qo = {1, 3};
  b.kv = {100000, 700};
  b.workers = 3;
  Plan plan = Planner::plan(per_head_traits(), b.input());
  verify(plan);
  ASSERT_GT(plan.num_partials(), 0);
  const auto& h = plan.impl().header();
  ASSERT_EQ(h.records.count, plan.num_items());
  auto* records = section<ItemRecord>(plan.impl().bytes.data(), h.records);
  for (int ItemRecord::*field :
       {&ItemRecord::next, &ItemRecord::kv_head_begin, &ItemRecord::row_begin, &ItemRecord::num_rows,
        &ItemRecord::q_row, &ItemRecord::block_row, &ItemRecord::request, &ItemRecord::idx, &ItemRecord::qo_len,
        &ItemRecord::first_pos, &ItemRecord::kv_begin, &ItemRecord::kv_end, &ItemRecord::chunk, &ItemRecord::num_chunks,
        &ItemRecord::merge_begin, &ItemRecord::merge_rows}) {
    ItemRecord* const cut = std::find_if(records, records + h.records.count, [](const ItemRecord& record) {
      return record.partial >= 0 && record.next >= 0;
    });
    ASSERT_NE(cut, records + h.records.count);
    ++(cut->*field);
    EXPECT_THROW(verify(plan), InternalError)
        << "field at byte " << reinterpret_cast<char*>(&(cut->*field)) - reinterpret_cast<char*>(cut);
    --(cut->*field);
    verify(plan);
  }
  ++records->first;
  EXPECT_THROW(verify(plan), InternalError);
  --records->first;
  records->num_page_ids -= 1;
  EXPECT_THROW(verify(plan), InternalError);
}

TEST(Verify, FindsAShiftedBorder) {
  Batch b;
  b.qo = {1};
  b.kv = {100000};
  b.workers = 3;
  Plan plan = Planner::plan(per_head_traits(), b.input());
  verify(plan);
  ASSERT_GT(plan.num_partials(), 0);
  const auto& h = plan.impl().header();
  auto* items = section<attention::WorkItem>(plan.impl().bytes.data(), h.items);
  for (int i = 0; i < plan.num_items(); ++i)
    if (items[i].kv_end != attention::kOpenEnd) {
      items[i].kv_end += 64;
      EXPECT_THROW(verify(plan), InternalError);
      items[i].kv_end -= 128;
      EXPECT_THROW(verify(plan), InternalError);
      items[i].kv_end += 64;
      verify(plan);
      break;
    }
  items[0].partial ^= 1;
  EXPECT_THROW(verify(plan), InternalError);
}

TEST(Verify, FindsBrokenRowsGroupsAndPages) {
  Batch b;
  b.qo = {1, 3};
  b.kv = {5000, 4000};
  b.workers = 7;
  Plan plan = Planner::plan(cpu_like_traits(), b.input());
  const char* base = plan.impl().bytes.data();
  const auto& h = plan.impl().header();
  const auto broken = [&]<class T>(T* field, T value) {
    const T before = *field;
    *field = value;
    EXPECT_THROW(verify(plan), InternalError);
    *field = before;
    verify(plan);
  };
  broken(&section<attention::PlanRow>(base, h.rows)[1].pos, 0);
  broken(&section<attention::PlanRow>(base, h.rows)[1].q_row, 0);
  broken(&section<attention::MergeGroup>(base, h.merge_groups)[0].expected, 1);
  broken(&section<attention::MergeSource>(base, h.merge_sources)[0].partial, 1);
  broken(&section<attention::Unit>(base, h.units)[0].tile_kind, static_cast<attention::TileKind>(3));
  broken(&section<attention::Unit>(base, h.units)[0].kv_head_end, 0);
  broken(&section<int>(base, h.page_indices)[3], 1 << 20);
  broken(&section<int>(base, h.worker_indptr)[1], 10000);
}

}  // namespace
}  // namespace weft::test
