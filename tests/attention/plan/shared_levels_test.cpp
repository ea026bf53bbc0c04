// Levels found in page tables and taken from prefix trees.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/attention/plan/plan_support.h"
#include "weft/levels.h"

namespace weft::test {
namespace {

using namespace attention;

// Requests as lists of page ids.
struct Tables {
  int page_size = 16;
  std::vector<std::vector<int32_t>> pages;
  std::vector<int32_t> last_page_len, qo_indptr{0}, indptr, ids;
  PlanInput input{.num_qo_heads = 32, .num_kv_heads = 8, .num_workers = 2};

  void add(std::vector<int32_t> own, int qo_len = 1, int last = 16) {
    pages.push_back(std::move(own));
    last_page_len.push_back(pages.back().empty() ? 0 : last);
    qo_indptr.push_back(qo_indptr.back() + qo_len);
  }
  const PlanInput& give() {
    indptr = {0};
    ids.clear();
    int32_t most = 0;
    for (const auto& own : pages) {
      ids.insert(ids.end(), own.begin(), own.end());
      indptr.push_back(static_cast<int32_t>(ids.size()));
      for (const int32_t id : own) most = std::max(most, id);
    }
    input.qo_indptr = qo_indptr;
    input.pages = {page_size, most + 1, indptr, ids, last_page_len};
    return input;
  }
  int length(size_t r) const {
    return pages[r].empty() ? 0 : static_cast<int>(pages[r].size() - 1) * page_size + last_page_len[r];
  }
};

std::vector<int32_t> range(int begin, int n) {
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) ids[static_cast<size_t>(i)] = begin + i;
  return ids;
}
std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The keys of each q row in order, as (page, slot), read from the plan: levels or not, they must be the same.
std::vector<std::vector<int64_t>> keys_of(const Plan& plan) {
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  const auto* rows = section<PlanRow>(base, h.rows);
  const auto* lists = section<PageList>(base, h.page_lists);
  const int* ids = section<int>(base, h.page_indices);
  const int* kv_len = section<int>(base, h.kv_len);
  std::vector<std::vector<int64_t>> keys(static_cast<size_t>(h.num_rows_q));
  for (long long l = 0; l < h.page_lists.count; ++l)
    for (int row = lists[l].row_begin; row < lists[l].row_end; ++row) {
      const int len = lists[l].len < 0 ? kv_len[lists[l].request] - lists[l].first_pos : lists[l].len;
      for (int t = 0; t < len; ++t)
        keys[static_cast<size_t>(rows[row].q_row)].push_back(int64_t{ids[lists[l].first + t / h.page_size]} * 1000 +
                                                             t % h.page_size);
    }
  return keys;
}

TEST(SharedLevels, FindAPrefixWhereverItsRequestsStand) {
  Tables t;
  for (int r = 0; r < 16; ++r) t.add(r % 2 == 0 ? range(0, 200) + range(1000 + 4 * r, 4) : range(2000 + 8 * r, 8));
  const SharedLevels shared = Planner::shared_levels(cpu_like_traits(), t.give());
  ASSERT_EQ(shared.num_levels(), 2);
  const PlanInput leveled = shared.apply(t.input);
  const Plan plan = Planner::plan(cpu_like_traits(), leveled), plain = Planner::plan(cpu_like_traits(), t.input);
  verify(plan);
  EXPECT_EQ(keys_of(plan), keys_of(plain));
  EXPECT_LT(plan.makespan(), 0.5 * plain.makespan());
  const Level& first = leveled.levels[0];
  EXPECT_EQ(first.pages.kv_page_indices.size(), 200u);
  EXPECT_EQ(first.qo_indptr[1], 8);  // the eight that share, side by side in the plan's order
}

TEST(SharedLevels, FollowATreeOfPrefixes) {
  Tables t;
  for (int r = 0; r < 32; ++r)
    t.add(range(0, 64) + range(100 + 64 * (r / 8), 64) + range(1000 + 64 * (r / 2), 64) + range(10000 + 2 * r, 2), 1,
          5);
  const SharedLevels shared = Planner::shared_levels(cpu_like_traits(Keys::causal), t.give());
  EXPECT_GE(shared.num_levels(), 3);
  const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), shared.apply(t.input));
  verify(plan);
  EXPECT_EQ(keys_of(plan), keys_of(Planner::plan(cpu_like_traits(Keys::causal), t.input)));
}

// A request may end within what others share: its last page is its own, and theirs stays shared.
TEST(SharedLevels, OneThatEndsWithinAPrefixLeavesItToTheOthers) {
  Tables t;
  for (int r = 0; r < 12; ++r) t.add(range(0, 300) + range(1000 + 4 * r, 4));
  t.add(range(0, 2), 1, 5);
  const SharedLevels shared = Planner::shared_levels(cpu_like_traits(), t.give());
  ASSERT_FALSE(shared.empty());
  const PlanInput leveled = shared.apply(t.input);
  size_t longest = 0;
  for (const Level& level : leveled.levels)
    for (size_t e = 0; e + 1 < level.qo_indptr.size(); ++e)
      if (level.qo_indptr[e + 1] - level.qo_indptr[e] == 12)
        longest += static_cast<size_t>(level.pages.kv_page_indptr[e + 1] - level.pages.kv_page_indptr[e]);
  EXPECT_GE(longest, 299u);
  const Plan plan = Planner::plan(cpu_like_traits(), leveled);
  verify(plan);
  EXPECT_EQ(keys_of(plan), keys_of(Planner::plan(cpu_like_traits(), t.input)));
}

TEST(SharedLevels, DeclineWhereNothingIsSharedOrItDoesNotPay) {
  Tables apart, together, far;
  for (int r = 0; r < 16; ++r) {
    apart.add(range(100 * r, 100));
    together.add(range(0, 1) + range(1000 + 300 * r, 300));  // one page of 301
    far.add(range(0, 100) + range(1000 + 300 * r, 300));     // the window ends behind what is shared
  }
  far.input.scalars = scalars_of(Keys::window, 200);
  for (Tables* t : {&apart, &together, &far}) {
    const KernelTraits traits = cpu_like_traits(t == &far ? Keys::window : Keys::causal);
    const SharedLevels shared = Planner::shared_levels(traits, t->give());
    EXPECT_TRUE(shared.empty());
    EXPECT_EQ(bytes_of(Planner::plan(traits, shared.apply(t->input))), bytes_of(Planner::plan(traits, t->input)));
  }
}

TEST(SharedLevels, RoundBordersDownToTheSplit) {
  Tables t;
  for (int r = 0; r < 16; ++r) t.add(range(0, 203) + range(1000 + 4 * r, 4));
  t.input.mode = PlanMode::fixed_split;
  t.input.fixed_split_size = 128;
  KernelTraits traits = cpu_like_traits();
  for (TileClass& c : traits.classes) c.row_token /= 8;  // so that two tokens a tile pay
  const SharedLevels shared = Planner::shared_levels(traits, t.give());
  ASSERT_FALSE(shared.empty());
  EXPECT_EQ(shared.apply(t.input).levels[0].pages.kv_page_indices.size(), 200u);  // 25 chunks of 8 pages
  verify(Planner::plan(traits, shared.apply(t.input)));
}

// Two branches of 64 pages behind a trunk of 64, each of eight requests, one of which ends with the trunk; one
// stranger.
struct KnownTree {
  Tables t;
  std::vector<int32_t> parent{-1, 0, 0}, num_pages{64, 128, 128}, node;
  KnownTree() {
    for (int r = 0; r < 16; ++r) {
      const int branch = r % 2;
      t.add(r == 5 ? range(0, 64) + range(5000, 3)
                   : range(0, 64) + range(100 + 64 * branch, 64) + range(1000 + 4 * r, 4));
      node.push_back(r == 5 ? 0 : 1 + branch);
    }
    t.add(range(9000, 40));
    node.push_back(-1);
  }
  SharedPrefixes prefixes() const { return {parent, num_pages, node}; }
  const PlanInput& give() {
    t.give();
    t.input.pages.num_pages = 50000;  // of the pool, whatever the requests hold
    return t.input;
  }
};

TEST(KnownPrefixes, BecomeTheLevelsThatAreFoundInTables) {
  KnownTree tree;
  const KernelTraits traits = cpu_like_traits();
  const SharedPrefixes prefixes = tree.prefixes();
  const SharedLevels known = Planner::shared_levels(traits, tree.t.give(), &prefixes),
                     found = Planner::shared_levels(traits, tree.t.input);
  ASSERT_EQ(known.num_levels(), 3);
  EXPECT_EQ(known.num_levels(), found.num_levels());
  const Plan plan = Planner::plan(traits, known.apply(tree.t.input));
  verify(plan);
  EXPECT_EQ(keys_of(plan), keys_of(Planner::plan(traits, tree.t.input)));
  const double as_found = Planner::plan(traits, found.apply(tree.t.input)).makespan();
  EXPECT_NEAR(plan.makespan(), as_found, 0.01 * as_found);  // in another order
}

TEST(KnownPrefixes, DeclineWhereTheyDoNotPay) {
  Tables t;
  for (int r = 0; r < 16; ++r) t.add(range(0, 1) + range(1000 + 300 * r, 300));
  const std::vector<int32_t> parent{-1}, num_pages{1}, node(16, 0);
  const SharedPrefixes prefixes{parent, num_pages, node};
  EXPECT_TRUE(Planner::shared_levels(cpu_like_traits(), t.give(), &prefixes).empty());
  const std::vector<int32_t> alone(16, -1);
  const SharedPrefixes none{parent, num_pages, alone};
  EXPECT_TRUE(Planner::shared_levels(cpu_like_traits(), t.input, &none).empty());
}

TEST(KnownPrefixes, NameWhatIsWrong) {
  const KernelTraits traits = cpu_like_traits();
  const auto refuses = [&](const auto& spoil) {
    KnownTree tree;
    spoil(tree);
    const SharedPrefixes prefixes = tree.prefixes();
    try {
      Planner::shared_levels(traits, tree.t.give(), &prefixes);
    } catch (const Error& error) {
      return error.code() == ErrorCode::invalid_argument;
    }
    return false;
  };
  EXPECT_FALSE(refuses([](KnownTree&) {}));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.node[3] = 3; }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.node[3] = -2; }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.node.pop_back(); }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.parent[1] = 1; }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.num_pages[2] = 64; }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.num_pages.push_back(70); }));
  EXPECT_TRUE(refuses([](KnownTree& k) { k.node[16] = 0; }));         // the stranger has other pages
  EXPECT_TRUE(refuses([](KnownTree& k) { k.node[5] = 2; }));          // and this one fewer
  EXPECT_TRUE(refuses([](KnownTree& k) { k.t.pages[7][100] = 1; }));  // one page of a branch differs
}

TEST(KnownPrefixes, AreFollowedWhileTheirRequestsGrow) {
  KnownTree tree;
  const KernelTraits traits = cpu_like_traits();
  const SharedPrefixes prefixes = tree.prefixes();
  SharedLevels levels = Planner::shared_levels(traits, tree.give(), &prefixes);
  ASSERT_FALSE(levels.empty());
  for (int step = 0; step < 3; ++step) {
    for (size_t r = 0; r < tree.t.pages.size(); ++r) {
      tree.t.pages[r].push_back(20000 + 100 * step + static_cast<int32_t>(r));
      tree.t.last_page_len[r] = 1 + step;
    }
    ASSERT_TRUE(levels.follow(tree.give()));
    const Plan plan = Planner::plan(traits, levels.apply(tree.t.input));
    verify(plan);
    EXPECT_EQ(keys_of(plan), keys_of(Planner::plan(traits, tree.t.input)));
  }
  const auto follows_when = [&](const auto& change) {
    KnownTree other = tree;
    change(other.t);
    return levels.follow(other.give());
  };
  EXPECT_TRUE(follows_when([](Tables&) {}));
  EXPECT_FALSE(follows_when([](Tables& t) { t.pages[7][100] = 30000; }));  // another shared page
  EXPECT_FALSE(follows_when([](Tables& t) { t.pages[5].resize(64); }));    // nothing of its own
  EXPECT_FALSE(follows_when([](Tables& t) { t.qo_indptr.back() += 1; }));
  EXPECT_FALSE(SharedLevels().follow(tree.give()));
}

RC_GTEST_PROP(SharedLevels, attend_what_the_plain_plan_attends, ()) {
  // Tables grown from each other: pages of earlier requests, cut somewhere, and some of one's own.
  Tables t;
  t.page_size = *rc::gen::element(1, 16);
  const int requests = *rc::gen::inRange(0, 20);
  int next = 0;
  for (int r = 0; r < requests; ++r) {
    std::vector<int32_t> own;
    if (r > 0 && *rc::gen::inRange(0, 3) > 0) {
      own = t.pages[static_cast<size_t>(*rc::gen::inRange(0, r))];
      own.resize(own.size() - static_cast<size_t>(*rc::gen::inRange(0, static_cast<int>(own.size()) + 1)) / 2);
    }
    const int more = *rc::gen::element(0, 1, 5, 100);
    own = own + range(next, more);
    next += more;
    t.add(own, *rc::gen::element(0, 1, 1, 1, 7, 50), *rc::gen::inRange(1, t.page_size + 1));
  }
  const Keys keys = *rc::gen::element(Keys::all, Keys::causal, Keys::sink_and_window);
  t.input.scalars = scalars_of(keys, 50);
  if (*rc::gen::arbitrary<bool>()) {
    t.input.mode = PlanMode::fixed_split;
    t.input.fixed_split_size = 64;
  }
  const KernelTraits traits = *rc::gen::arbitrary<bool>() ? cpu_like_traits(keys) : per_head_traits(keys);
  const SharedLevels shared = Planner::shared_levels(traits, t.give());
  const Plan plan = Planner::plan(traits, shared.apply(t.input)), plain = Planner::plan(traits, t.input);
  verify(plan);
  RC_ASSERT(keys_of(plan) == keys_of(plain));
  RC_TAG(shared.num_levels());
}

TEST(PrefixTree, BecomesALevelAStep) {
  // 0: pages 0..3; 1 and 2 below it; request 2 ends at the root's child 2 together with request 0.
  const std::vector<int32_t> parent{-1, 0, 0, 1}, indptr{0, 4, 6, 9, 10}, ids = range(20, 10), last{16, 7, 3, 16},
                                                                          node{2, 3, 2, 0};
  const std::vector<int32_t> qo_indptr{0, 1, 3, 4, 4};
  const PrefixTree tree{16, 40, parent, indptr, ids, last, node};
  const SharedLevels shared = levels_from_prefix_tree(tree, qo_indptr);
  ASSERT_EQ(shared.num_levels(), 3);
  PlanInput input{.num_qo_heads = 8, .num_kv_heads = 2, .qo_indptr = qo_indptr, .num_workers = 3};
  const Plan plan = Planner::plan(cpu_like_traits(Keys::causal), shared.apply(input));
  verify(plan);
  const auto keys = keys_of(plan);
  EXPECT_EQ(keys[0].size(), 4 * 16 + 2 * 16 + 3u);
  EXPECT_EQ(keys[0], keys[3]);
  EXPECT_EQ(keys[1].size(), 4 * 16 + 16 + 7 + 16u);
  EXPECT_EQ(keys[1].front(), 20000);
  EXPECT_EQ(keys[1].back(), 29015);
}

TEST(PrefixTree, NamesWhatIsWrong) {
  std::vector<int32_t> parent{-1, 0}, indptr{0, 1, 2}, ids{0, 1}, last{16, 16}, node{1};
  const std::vector<int32_t> qo_indptr{0, 1};
  const auto refused = [&](const char* mentions) {
    try {
      (void)levels_from_prefix_tree({16, 4, parent, indptr, ids, last, node}, qo_indptr);
      ADD_FAILURE() << mentions << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(mentions), std::string::npos) << error.what();
    }
  };
  parent[1] = 1;
  refused("tree.parent[1] = 1");
  parent[1] = 0;
  indptr[1] = 3;
  refused("tree.page_indptr");
  indptr[1] = 1;
  node[0] = 2;
  refused("tree.node_of_request[0] = 2");
  node = {0, 1};
  refused("qo_indptr: has 2");
  node = {9};
  parent.assign(10, 0);
  for (int n = 0; n < 10; ++n) parent[static_cast<size_t>(n)] = n - 1;
  indptr.assign(11, 0);
  last.assign(10, 0);
  refused("required 10 levels");
}

}  // namespace
}  // namespace weft::test
