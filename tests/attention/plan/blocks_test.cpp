// Plans of block-sparse lists: what they cost, and what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tests/attention/plan/plan_support.h"
#include "weft/block_sparse.h"

namespace weft::test {
namespace {

KernelTraits traits_of(Keys keys = Keys::all) { return cpu_like_traits(keys, KvForm::block_sparse); }

struct Given {
  BlockLists lists;
  std::vector<int32_t> qo_indptr{0, 1, 9};  // row blocks of 4: one and two
  PlanInput input{.num_qo_heads = 8, .num_kv_heads = 2, .num_workers = 3};
  BlockSparse blocks;

  Given() {
    lists.block_rows = 4;
    lists.block_cols = 16;
    lists.num_blocks = 50;
    lists.block_indptr = {0, 10, 14, 14};
    lists.block_indices = {0, 7, 3, 4, 5, 6, 1, 8, 9, 10, 20, 21, 22, 23};
    lists.last_block_len = {16, 3, 0};
  }
  const PlanInput& give() {
    blocks = lists.view();
    input.qo_indptr = qo_indptr;
    input.blocks = &blocks;
    return input;
  }
};

TEST(Blocks, CostWhatIsListed) {
  Given g;
  g.input.num_workers = 1;
  const Plan plan = Planner::plan(traits_of(), g.give());
  verify(plan);
  const KernelTraits traits = traits_of();
  const auto cost = [&](int c, int tokens, int keys) {
    const TileClass& k = traits.classes[static_cast<size_t>(c)];
    return 2 * (k.row * tokens * 4 + k.item + (k.token + k.row_token * tokens * 4) * keys);
  };
  EXPECT_DOUBLE_EQ(plan.makespan(), cost(0, 1, 160) + cost(0, 4, 51) + cost(0, 4, 0));
  EXPECT_NE(plan.to_string().find("0..160"), std::string::npos);
  EXPECT_FALSE(plan.covers(g.input));  // lists do not grow
}

TEST(Blocks, MayDifferAKvHead) {
  Given g;
  g.lists.block_indptr = {0, 10, 14, 14, 15, 15, 16};
  g.lists.block_indices.insert(g.lists.block_indices.end(), {40, 41});
  g.lists.last_block_len = {16, 3, 0, 5, 0, 16};
  const Plan plan = Planner::plan(traits_of(), g.give());
  verify(plan);
  const auto& h = plan.impl().header();
  EXPECT_EQ(h.page_lists.count, 6);
  const auto* lists = section<attention::PageList>(plan.impl().bytes.data(), h.page_lists);
  EXPECT_EQ(lists[0].kv_head_begin, 0);
  EXPECT_EQ(lists[1].kv_head_begin, 1);
  EXPECT_EQ(lists[1].len, 5);
}

TEST(Blocks, BoundsLeaveRoomForOtherLists) {
  Given g;
  g.lists.bits_index.assign(14, -1);
  g.lists.bits_index[3] = 1;
  g.lists.bits.assign(16, 0x5a);
  for (int32_t block = 0; block < 14; ++block) g.lists.kv_positions.push_back(16 * block);
  PlanBounds bounds{.max_requests = 2,
                    .max_rows = 9,
                    .max_pages = 20,
                    .max_kv_len = 224,
                    .page_size = 16,
                    .num_qo_heads = 8,
                    .num_kv_heads = 2,
                    .workers = 3,
                    .block_rows = 4,
                    .positions_per_block = 1,
                    .max_bits_bytes = 16};
  g.input.bounds = &bounds;
  const Plan plan = Planner::plan(traits_of(), g.give());
  verify(plan);
  EXPECT_EQ(plan.workspace_bytes(), Planner::workspace_bytes(traits_of(), bounds));
  Given less;
  less.input.bounds = &bounds;
  const Plan other = Planner::plan(traits_of(), less.give());
  verify(other);
  EXPECT_EQ(other.workspace_bytes(), plan.workspace_bytes());
  const auto refused = [&](auto PlanBounds::*bound, auto value) {
    const auto before = std::exchange(bounds.*bound, value);
    EXPECT_THROW((void)Planner::plan(traits_of(), g.input), Error);
    bounds.*bound = before;
  };
  refused(&PlanBounds::block_rows, 3);
  refused(&PlanBounds::positions_per_block, 0);
  refused(&PlanBounds::max_bits_bytes, int64_t{15});
  refused(&PlanBounds::max_kv_len, int64_t{210});
  refused(&PlanBounds::max_pages, int64_t{13});
}

TEST(Blocks, RefusalsNameWhatIsWrong) {
  const auto refused = [](ErrorCode code, const char* mentions, const std::function<void(Given&)>& change) {
    Given g;
    change(g);
    try {
      (void)Planner::plan(traits_of(), g.give());
      ADD_FAILURE() << mentions << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(mentions), std::string::npos) << error.what();
    }
  };
  constexpr ErrorCode kArgument = ErrorCode::invalid_argument, kIndptr = ErrorCode::invalid_indptr;
  refused(kArgument, "block_rows = 0", [](Given& g) { g.lists.block_rows = 0; });
  refused(kIndptr, "need 4, or 7", [](Given& g) { g.lists.block_indptr.pop_back(); });
  refused(kIndptr, "never decreases", [](Given& g) { g.lists.block_indptr[1] = 15; });
  refused(ErrorCode::invalid_page, "block_indices[2] = 50", [](Given& g) { g.lists.block_indices[2] = 50; });
  refused(ErrorCode::invalid_page, "last_block_len[1] = 17", [](Given& g) { g.lists.last_block_len[1] = 17; });
  refused(ErrorCode::invalid_page, "last_block_len[2] = 1", [](Given& g) { g.lists.last_block_len[2] = 1; });
  refused(kArgument, "last_block_len: has 2", [](Given& g) { g.lists.last_block_len.pop_back(); });
  refused(kArgument, "kv_positions: has 3", [](Given& g) { g.lists.kv_positions = {0, 1, 2}; });
  refused(kArgument, "kv_positions[0] = -1", [](Given& g) { g.lists.kv_positions.assign(14, -1); });
  refused(kArgument, "q_positions: has 1", [](Given& g) { g.lists.q_positions = {0}; });
  refused(kArgument, "bits_index: has 1", [](Given& g) { g.lists.bits_index = {0}; });
  refused(kArgument, "bits_index[0] = 1", [](Given& g) {
    g.lists.bits_index.assign(14, 1);
    g.lists.bits.assign(8, 0xff);
  });
  refused(kArgument, "beyond bounds.max_requests = 0", [](Given& g) {
    static const PlanBounds bounds{
        .page_size = 16, .num_qo_heads = 8, .num_kv_heads = 2, .workers = 3, .block_rows = 4};
    g.input.bounds = &bounds;
  });
  Given g;
  g.give();
  EXPECT_THROW((void)Planner::plan(cpu_like_traits(), g.input), Error);  // a paged kernel
  g.input.blocks = nullptr;
  EXPECT_THROW((void)Planner::plan(traits_of(), g.input), Error);
}

TEST(BlockConstructors, NameWhatIsWrong) {
  const std::vector<int32_t> qo_indptr{0, 2}, indptr{0, 3}, ids{4, 5, 6}, last{2};
  const PageTableView table{16, 10, indptr, ids, last};
  const auto refused = [](const char* mentions, const std::function<BlockLists()>& make) {
    try {
      (void)make();
      ADD_FAILURE() << mentions << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(mentions), std::string::npos) << error.what();
    }
  };
  const std::vector<int32_t> two{0, 2}, wrong{2, 0}, no_last{0, 1}, parent{-1, 1}, ok{-1, 0};
  refused("selected: has 2", [&] { return select_pages(table, qo_indptr, 2, two, 2); });
  refused("= 0 after 2", [&] { return select_pages(table, qo_indptr, 1, wrong, 2); });
  refused("ends with page 1 of 3", [&] { return select_pages(table, qo_indptr, 1, no_last, 2); });
  EXPECT_EQ(select_pages(table, qo_indptr, 1, two, 2).kv_positions, (std::vector<int32_t>{0, 32}));
  refused("parent[1] = 1", [&] { return blocks_from_tree(table, qo_indptr, parent); });
  refused("parent: has 1", [&] { return blocks_from_tree(table, qo_indptr, std::span(parent).first(1)); });
  EXPECT_EQ(blocks_from_tree(table, qo_indptr, ok).q_positions, (std::vector<int32_t>{32, 33}));
  const std::vector<uint8_t> mask{1, 1};
  refused("mask: has 2", [&] { return blocks_from_importance(table, qo_indptr, 2, mask); });
}

}  // namespace
}  // namespace weft::test
