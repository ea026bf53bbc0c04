// Page summaries and the choice of pages, against fp64.
#include "weft/quest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "weft/block_sparse.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::test::quest {
namespace {

constexpr int kHeads = 2, kGroup = 3, kDim = 24, kPage = 4, kPages = 40;

// A paged cache of keys whose dead slots are NaN, with its summaries.
struct Cache {
  DType dtype;
  Layout layout;
  PageTable table{kPage, kPages};
  std::vector<char> keys, values;
  std::vector<float> low, high;
  std::mt19937 random;

  Cache(DType d, Layout l, unsigned seed)
      : dtype(d),
        layout(l),
        keys(static_cast<size_t>(kPages * kPage * kHeads * kDim * 4), static_cast<char>(0xff)),
        values(keys),
        low(kPages * kHeads * kDim, NAN),
        high(low),
        random(seed) {}
  TensorView view(std::vector<char>& bytes) const {
    if (layout == Layout::nhd) return {bytes.data(), dtype, {kPages, kPage, kHeads, kDim}};
    return {bytes.data(), dtype, {kPages, kHeads, kPage, kDim}};
  }
  PageSummaries summaries() const {
    return {TensorView(low.data(), DType::fp32, {kPages, kHeads, kDim}),
            TensorView(high.data(), DType::fp32, {kPages, kHeads, kDim})};
  }
  void append(const std::vector<PageTable::RequestId>& requests, const std::vector<int>& counts) {
    std::vector<int32_t> indptr{0};
    for (size_t r = 0; r < requests.size(); ++r) {
      table.append(requests[r], counts[r]);
      indptr.push_back(indptr.back() + counts[r]);
    }
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<size_t>(indptr.back() * kHeads * kDim));
    for (float& x : rows) x = normal(random);
    const TensorView k(rows.data(), DType::fp32, {indptr.back(), kHeads, kDim});
    const PageTableView pages = table.view(requests);
    append_paged_kv(k, k, indptr, pages, layout, {view(keys), view(values)});
    update_page_summaries(view(keys), indptr, pages, layout, summaries());
  }
  double key(int page, int slot, int head, int d) {
    const int64_t at = layout == Layout::nhd ? ((page * kPage + slot) * kHeads + head) * kDim + d
                                             : ((page * kHeads + head) * kPage + slot) * kDim + d;
    if (dtype == DType::fp32) return reinterpret_cast<const float*>(keys.data())[at];
    const uint16_t bits = reinterpret_cast<const uint16_t*>(keys.data())[at];
    if (dtype == DType::bf16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
    const int exponent = bits >> 10 & 31;
    const double x = exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
    return (bits & 0x8000) != 0 ? -x : x;
  }
  // Every page of the request has the least and largest of its keys.
  void expect_right(PageTable::RequestId request) {
    const auto ids = table.pages(request);
    for (size_t i = 0; i < ids.size(); ++i)
      for (int head = 0; head < kHeads; ++head)
        for (int d = 0; d < kDim; ++d) {
          double least = INFINITY, largest = -INFINITY;
          const int64_t tokens = table.length(request) - static_cast<int64_t>(i) * kPage;
          for (int slot = 0; slot < std::min<int64_t>(kPage, tokens); ++slot) {
            least = std::min(least, key(ids[i], slot, head, d));
            largest = std::max(largest, key(ids[i], slot, head, d));
          }
          const auto at = static_cast<size_t>((ids[i] * kHeads + head) * kDim + d);
          ASSERT_EQ(static_cast<double>(low[at]), least) << "page " << i << " d " << d;
          ASSERT_EQ(static_cast<double>(high[at]), largest) << "page " << i << " d " << d;
        }
  }
};

TEST(PageSummaries, FollowTheCacheThroughAppendsCutsAndForks) {
  unsigned seed = 0;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const Layout layout : {Layout::nhd, Layout::hnd}) {
      Cache cache(dtype, layout, ++seed);
      const auto a = cache.table.add(), b = cache.table.add();
      cache.append({a, b}, {10, 3});
      cache.append({a, b}, {0, 1});
      cache.append({a, b}, {1, 9});
      cache.expect_right(a);
      cache.expect_right(b);
      cache.table.truncate(a, 6);  // inside of a page
      cache.append({a}, {1});
      cache.expect_right(a);
      const PageTable::Fork fork = cache.table.fork(b, 6);
      const TensorView keys = cache.view(cache.keys);
      const int64_t page_bytes = keys.stride(0) * bits_of(dtype) / 8;
      std::copy_n(keys.as<char>() + fork.source_page * page_bytes, page_bytes,
                  keys.as<char>() + fork.target_page * page_bytes);
      cache.append({fork.request}, {3});
      cache.expect_right(fork.request);
      cache.expect_right(b);
    }
}

// The nearest bf16 numbers around the least and the largest key; keys in bf16 are their own.
TEST(PageSummaries, InBf16AreRoundedOutwards) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Cache cache(dtype, Layout::nhd, 11);
    const auto request = cache.table.add();
    cache.append({request}, {23});
    std::vector<uint16_t> low(cache.low.size()), high(low.size());
    const PageSummaries narrow{TensorView(low.data(), DType::bf16, {kPages, kHeads, kDim}),
                               TensorView(high.data(), DType::bf16, {kPages, kHeads, kDim})};
    const std::vector<int32_t> indptr{0, 23};
    update_page_summaries(cache.view(cache.keys), indptr, cache.table.view({request}), Layout::nhd, narrow);
    const auto number = [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); };
    // The next number towards 0 or away from it, whichever lies on the side of the exact one.
    const auto beside = [&](uint16_t bits, bool above) {
      return number(static_cast<uint16_t>(bits + ((bits >> 15 == 0) == above ? 1 : -1)));
    };
    for (const int32_t page : cache.table.pages(request))
      for (int i = 0; i < kHeads * kDim; ++i) {
        const auto at = static_cast<size_t>(page * kHeads * kDim + i);
        ASSERT_LE(number(low[at]), cache.low[at]);
        ASSERT_GE(number(high[at]), cache.high[at]);
        if (dtype == DType::bf16) {
          ASSERT_EQ(number(low[at]), cache.low[at]);
          ASSERT_EQ(number(high[at]), cache.high[at]);
        } else {
          ASSERT_GT(beside(low[at], true), cache.low[at]);
          ASSERT_LT(beside(high[at], false), cache.high[at]);
        }
      }
  }
}

TEST(ChoosePages, TakesTheLargestBoundsAndAlwaysThePagesOfTheQueries) {
  Cache cache(DType::bf16, Layout::nhd, 7);
  const std::vector<PageTable::RequestId> requests{cache.table.add(), cache.table.add(), cache.table.add()};
  cache.append(requests, {61, 14, 5});
  const std::vector<int32_t> qo_indptr{0, 1, 7, 7};  // six tokens in two or three pages; none
  std::vector<float> q(static_cast<size_t>(7 * kHeads * kGroup * kDim));
  std::normal_distribution<float> normal;
  for (float& x : q) x = normal(cache.random);
  const TensorView queries(q.data(), DType::fp32, {7, kHeads * kGroup, kDim});
  const PageTableView pages = cache.table.view(requests);
  for (const int budget : {3, 4, 16}) {
    const std::vector<int32_t> selected = choose_pages(queries, cache.summaries(), qo_indptr, pages, kHeads, budget);
    ASSERT_EQ(selected.size(), static_cast<size_t>(3 * kHeads * budget));
    for (int r = 0; r < 3; ++r)
      for (int head = 0; head < kHeads; ++head) {
        const auto ids = cache.table.pages(requests[static_cast<size_t>(r)]);
        const int queries_of = qo_indptr[static_cast<size_t>(r) + 1] - qo_indptr[static_cast<size_t>(r)];
        std::vector<int32_t> expected;
        if (queries_of > 0) {
          const auto competing =
              static_cast<size_t>(cache.table.length(requests[static_cast<size_t>(r)]) - queries_of) / kPage;
          std::vector<std::pair<double, int32_t>> bounds;
          for (size_t page = 0; page < competing; ++page) {
            double most = -INFINITY;
            for (int row = qo_indptr[static_cast<size_t>(r)]; row < qo_indptr[static_cast<size_t>(r) + 1]; ++row)
              for (int h = head * kGroup; h < (head + 1) * kGroup; ++h) {
                double bound = 0;
                for (int d = 0; d < kDim; ++d) {
                  const double x = q[static_cast<size_t>((row * kHeads * kGroup + h) * kDim + d)];
                  double least = INFINITY, largest = -INFINITY;
                  for (int slot = 0; slot < kPage; ++slot) {
                    least = std::min(least, cache.key(ids[page], slot, head, d));
                    largest = std::max(largest, cache.key(ids[page], slot, head, d));
                  }
                  bound += std::max(x * least, x * largest);
                }
                most = std::max(most, bound);
              }
            bounds.emplace_back(-most, static_cast<int32_t>(page));
          }
          std::sort(bounds.begin(), bounds.end());
          const size_t room =
              static_cast<size_t>(budget) - std::min<size_t>(static_cast<size_t>(budget), ids.size() - competing);
          for (size_t i = 0; i < std::min(room, competing); ++i) expected.push_back(bounds[i].second);
          std::sort(expected.begin(), expected.end());
          for (size_t page = competing; page < ids.size(); ++page) expected.push_back(static_cast<int32_t>(page));
        }
        expected.resize(static_cast<size_t>(budget), -1);
        const auto begin = selected.begin() + (r * kHeads + head) * budget;
        EXPECT_EQ(std::vector<int32_t>(begin, begin + budget), expected)
            << "request " << r << " head " << head << " budget " << budget;
      }
    // What block-sparse attention takes, as it stands.
    const BlockLists lists = select_pages(pages, qo_indptr, kHeads, selected, budget);
    EXPECT_LE(lists.block_indices.size(), static_cast<size_t>(2 * kHeads * budget));
  }
}

TEST(ChoosePages, TheEarlierOfEqualPagesWinsAndNaNIsChosen) {
  Cache cache(DType::fp32, Layout::nhd, 9);
  const auto request = cache.table.add();
  cache.append({request}, {41});
  std::fill(cache.low.begin(), cache.low.end(), 1.f);
  std::fill(cache.high.begin(), cache.high.end(), 1.f);
  const std::vector<float> q(kHeads * kGroup * kDim, 1.f);
  const auto choose = [&] {
    const std::vector<int32_t> qo_indptr{0, 1};
    return choose_pages(TensorView(q.data(), DType::fp32, {1, kHeads * kGroup, kDim}), cache.summaries(), qo_indptr,
                        cache.table.view({request}), kHeads, 3);
  };
  EXPECT_EQ(choose(), (std::vector<int32_t>{0, 1, 10, 0, 1, 10}));
  const auto id = static_cast<size_t>(cache.table.pages(request)[7]);
  cache.high[(id * kHeads + 1) * kDim] = cache.low[(id * kHeads + 1) * kDim] = NAN;
  EXPECT_EQ(choose(), (std::vector<int32_t>{0, 1, 10, 0, 7, 10}));
}

TEST(ChoosePages, ANaNKeyIsSummarisedAsOne) {
  Cache cache(DType::fp32, Layout::nhd, 10);
  const auto request = cache.table.add();
  cache.append({request}, {3});
  const auto id = static_cast<size_t>(cache.table.pages(request)[0]);
  reinterpret_cast<float*>(cache.keys.data())[id * kPage * kHeads * kDim] = NAN;
  cache.append({request}, {1});
  EXPECT_TRUE(std::isnan(cache.low[id * kHeads * kDim]) && std::isnan(cache.high[id * kHeads * kDim]));
  EXPECT_FALSE(std::isnan(cache.low[id * kHeads * kDim + 1]));
}

TEST(ChoosePages, RefusesWhatDoesNotFit) {
  Cache cache(DType::fp32, Layout::nhd, 8);
  const auto request = cache.table.add();
  cache.append({request}, {20});
  const std::vector<float> q(6 * kHeads * kGroup * kDim);
  const std::vector<int32_t> one{0, 1}, six{0, 6};
  const PageTableView pages = cache.table.view({request});
  const auto queries = [&](int rows, int heads) { return TensorView(q.data(), DType::fp32, {rows, heads, kDim}); };
  const auto refused = [](const auto& call, const std::string& named) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(named), std::string::npos) << e.what();
    }
  };
  refused([&] { choose_pages(queries(1, 6), cache.summaries(), one, pages, kHeads, 0); }, "budget = 0");
  refused([&] { choose_pages(queries(6, 6), cache.summaries(), six, pages, kHeads, 1); }, "budget = 1 must hold");
  // Of 20 tokens in pages of 4 the last six lie in two.
  EXPECT_EQ(choose_pages(queries(6, 6), cache.summaries(), six, pages, kHeads, 2), (std::vector<int32_t>{3, 4, 3, 4}));
  refused([&] { choose_pages(queries(1, 5), cache.summaries(), one, pages, kHeads, 2); }, "num_kv_heads");
  refused([&] { choose_pages(queries(2, 6), cache.summaries(), one, pages, kHeads, 2); }, "qo_indptr");
  PageTableView broken = pages;
  const std::vector<int32_t> ids(5, kPages);
  broken.kv_page_indices = ids;
  refused([&] { choose_pages(queries(1, 6), cache.summaries(), one, broken, kHeads, 2); }, "kv_page_indices[0]");
  refused([&] { update_page_summaries(cache.view(cache.keys), one, broken, Layout::nhd, cache.summaries()); },
          "kv_page_indices[0]");
  refused([&] { update_page_summaries(cache.view(cache.keys), one, pages, Layout::hnd, cache.summaries()); }, "HND");
  refused([&] { update_page_summaries(cache.view(cache.keys), one, pages, static_cast<Layout>(3), cache.summaries()); },
          "layout = 3");
}

TEST(PlannedPages, AreThoseOfPagesToSetAlone) {
  const AttentionKernel kernel = build({.head_dim_qk = 24, .head_dim_vo = 24, .kv_form = KvForm::block_sparse}, {});
  const auto planned = [&](const BlockLists& lists, const std::vector<int32_t>& qo_indptr) {
    const BlockSparse blocks = lists.view();
    const Plan plan = kernel.plan(
        {.num_qo_heads = kHeads * kGroup, .num_kv_heads = kHeads, .qo_indptr = qo_indptr, .blocks = &blocks});
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    plan.upload(workspace);
    return kernel.planned_pages(workspace).page_ids.shape(2);
  };
  const PageBudget of{
      .batch = 2, .qo_len = 3, .page_size = kPage, .num_pages = kPages, .num_kv_heads = kHeads, .budget = 5};
  EXPECT_EQ(planned(pages_to_set(of), {0, 3, 6}), 5);
  Cache cache(DType::fp32, Layout::nhd, 12);
  const std::vector<PageTable::RequestId> requests{cache.table.add(), cache.table.add()};
  cache.append(requests, {20, 13});
  const std::vector<int32_t> one_each{0, 1, 2};
  const std::vector<int32_t> chosen{0, 4, -1, 0, 1, 4, 0, 3, -1, 2, 3, -1};  // 9 pages in 4 lists
  const PageTableView pages = cache.table.view(requests);
  const auto refused = [&](const auto& call, ErrorCode code) {
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
    }
  };
  refused([&] { planned(blocks_from_page_table(pages, one_each), one_each); }, ErrorCode::plan_mismatch);
  refused([&] { planned(select_pages(pages, one_each, kHeads, chosen, 3), one_each); }, ErrorCode::plan_mismatch);
  const auto with = [&](const auto& change) {
    PageBudget other = of;
    change(other);
    refused([&] { pages_to_set(other); }, ErrorCode::invalid_argument);
  };
  with([](PageBudget& x) { x.budget = 1; });  // three tokens may lie in two pages
  with([](PageBudget& x) { x.budget = 1 << 30; });
  with([](PageBudget& x) { x.batch = -1; });
  with([](PageBudget& x) { x.qo_len = 0; });
  with([](PageBudget& x) { x.page_size = 0; });
  with([](PageBudget& x) { x.num_pages = 0; });
  with([](PageBudget& x) { x.num_kv_heads = 0; });
}

}  // namespace
}  // namespace weft::test::quest
