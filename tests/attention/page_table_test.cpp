#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "weft/attention.h"

namespace weft {
namespace {

ErrorCode code_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

// Every slot of the pool holds a token's name; the model keeps each request's tokens as a list.
class Model {
 public:
  Model(int page_size, int64_t num_pages)
      : table_(page_size, num_pages), slots_(static_cast<size_t>(page_size * num_pages), -1) {}

  PageTable& table() { return table_; }
  std::map<PageTable::RequestId, std::vector<int>>& requests() { return requests_; }

  void add() { requests_[table_.add()]; }

  void append(PageTable::RequestId id, int tokens) {
    const int64_t free_before = table_.num_free_pages();
    const std::vector<int32_t> pages_before(table_.pages(id).begin(), table_.pages(id).end());
    std::vector<int>& expected = requests_[id];
    const int64_t ps = table_.page_size();
    const int64_t needed =
        (static_cast<int64_t>(expected.size()) + tokens + ps - 1) / ps - static_cast<int64_t>(pages_before.size());
    bool into_shared_page = false;
    if (tokens > 0 && static_cast<int64_t>(expected.size()) % ps != 0)
      for (const auto& [other, unused] : requests_)
        into_shared_page =
            into_shared_page || (other != id && std::count(table_.pages(other).begin(), table_.pages(other).end(),
                                                           pages_before.back()) > 0);
    if (tokens > 0 && static_cast<int64_t>(expected.size()) % ps != 0)
      for (const std::vector<int32_t>& pages : held_)
        into_shared_page = into_shared_page || std::count(pages.begin(), pages.end(), pages_before.back()) > 0;
    try {
      table_.append(id, tokens);
    } catch (const Error& error) {
      RC_ASSERT(error.code() == (into_shared_page ? ErrorCode::invalid_argument : ErrorCode::context_full));
      RC_ASSERT(into_shared_page || needed > free_before);
      RC_ASSERT(table_.num_free_pages() == free_before);
      RC_ASSERT(std::equal(pages_before.begin(), pages_before.end(), table_.pages(id).begin(), table_.pages(id).end()));
      RC_ASSERT(table_.length(id) == static_cast<int64_t>(expected.size()));
      return;
    }
    RC_ASSERT(needed <= free_before && !into_shared_page);
    for (int i = 0; i < tokens; ++i) {
      expected.push_back(next_token_++);
      slot(id, static_cast<int64_t>(expected.size()) - 1) = expected.back();
    }
  }

  void fork(PageTable::RequestId id, int64_t tokens) {
    try {
      const PageTable::Fork fork = table_.fork(id, tokens);
      RC_ASSERT((fork.copied_slots > 0) == (tokens % table_.page_size() != 0));
      RC_ASSERT((fork.source_page >= 0) == (fork.copied_slots > 0));
      const auto ps = static_cast<size_t>(table_.page_size());
      for (int i = 0; i < fork.copied_slots; ++i)
        slots_[static_cast<size_t>(fork.target_page) * ps + i] = slots_[static_cast<size_t>(fork.source_page) * ps + i];
      const std::vector<int>& source = requests_[id];
      requests_[fork.request].assign(source.begin(), source.begin() + tokens);
    } catch (const Error& error) {
      RC_ASSERT(error.code() == ErrorCode::context_full);
      RC_ASSERT(table_.num_free_pages() == 0);
    }
  }

  // Whole pages of a request, held as a prefix cache would.
  void hold(PageTable::RequestId id) {
    const int64_t whole = table_.length(id) / table_.page_size();
    held_.emplace_back(table_.pages(id).begin(), table_.pages(id).begin() + whole);
    table_.hold(held_.back());
  }
  void unhold() {
    if (held_.empty()) return;
    table_.unhold(held_.front());
    held_.erase(held_.begin());
  }
  // A request that begins with held pages.
  void add_held() {
    if (held_.empty()) return add();
    std::vector<int>& tokens = requests_[table_.add(held_.back())];
    const auto ps = static_cast<size_t>(table_.page_size());
    for (const int32_t page : held_.back())
      for (size_t i = 0; i < ps; ++i) tokens.push_back(slots_[static_cast<size_t>(page) * ps + i]);
  }

  void truncate(PageTable::RequestId id, int64_t tokens) {
    table_.truncate(id, tokens);
    requests_[id].resize(static_cast<size_t>(tokens));
  }

  void release(PageTable::RequestId id) {
    table_.release(id);
    requests_.erase(id);
  }

  void check() {
    std::vector<PageTable::RequestId> ids;
    std::set<int32_t> used;
    for (const auto& [id, tokens] : requests_) {
      ids.push_back(id);
      RC_ASSERT(table_.length(id) == static_cast<int64_t>(tokens.size()));
      for (size_t t = 0; t < tokens.size(); ++t) RC_ASSERT(slot(id, static_cast<int64_t>(t)) == tokens[t]);
      used.insert(table_.pages(id).begin(), table_.pages(id).end());
    }
    for (const std::vector<int32_t>& pages : held_) used.insert(pages.begin(), pages.end());
    for (const int32_t page : used) RC_ASSERT(table_.num_holders(page) >= 1);
    RC_ASSERT(table_.num_free_pages() == table_.num_pages() - static_cast<int64_t>(used.size()));
    const PageTableView view = table_.view(ids);
    RC_ASSERT(view.kv_page_indptr.size() == ids.size() + 1);
    RC_ASSERT(view.ids_checked.covers(view.kv_page_indices, view.num_pages));
    for (size_t r = 0; r < ids.size(); ++r) {
      const auto pages = table_.pages(ids[r]);
      const auto listed =
          view.kv_page_indices.subspan(static_cast<size_t>(view.kv_page_indptr[r]),
                                       static_cast<size_t>(view.kv_page_indptr[r + 1] - view.kv_page_indptr[r]));
      RC_ASSERT(std::equal(pages.begin(), pages.end(), listed.begin(), listed.end()));
      const int64_t length =
          pages.empty() ? 0 : (static_cast<int64_t>(pages.size()) - 1) * table_.page_size() + view.kv_last_page_len[r];
      RC_ASSERT(length == table_.length(ids[r]));
    }
  }

 private:
  int& slot(PageTable::RequestId id, int64_t token) {
    const int64_t ps = table_.page_size();
    return slots_[static_cast<size_t>(table_.pages(id)[static_cast<size_t>(token / ps)] * ps + token % ps)];
  }
  PageTable table_;
  std::vector<int> slots_;
  std::map<PageTable::RequestId, std::vector<int>> requests_;
  std::vector<std::vector<int32_t>> held_;
  int next_token_ = 0;
};

RC_GTEST_PROP(PageTable, keeps_every_token_of_every_request_apart, ()) {
  Model model(*rc::gen::element(1, 2, 3, 16), *rc::gen::inRange(0, 20));
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    const int action = *rc::gen::inRange(0, 9);
    if (action == 0 || model.requests().empty()) {
      model.add();
    } else {
      auto chosen = model.requests().begin();
      std::advance(chosen, *rc::gen::inRange<int>(0, static_cast<int>(model.requests().size())));
      const auto id = chosen->first;
      const auto length = static_cast<int>(chosen->second.size());
      switch (action) {
        case 1:
        case 2: model.append(id, *rc::gen::inRange(0, 40)); break;
        case 3: model.fork(id, *rc::gen::inRange(0, length + 1)); break;
        case 4: model.truncate(id, *rc::gen::inRange(0, length + 1)); break;
        case 5: model.hold(id); break;
        case 6: model.unhold(); break;
        case 7: model.add_held(); break;
        default: model.release(id); break;
      }
    }
    model.check();
  }
}

TEST(PageTable, GivesOutEachPageOnce) {
  PageTable table(4, 5);
  const auto a = table.add(), b = table.add();
  table.append(a, 9);
  table.append(b, 8);
  std::set<int32_t> pages(table.pages(a).begin(), table.pages(a).end());
  pages.insert(table.pages(b).begin(), table.pages(b).end());
  EXPECT_EQ(pages.size(), 5u);
  EXPECT_EQ(table.num_free_pages(), 0);
}

TEST(PageTable, PagesThatWereNeverHandedOutComeInOrderAfterAllOthers) {
  PageTable table(4, 6);
  EXPECT_EQ(table.num_fresh_pages(), 6);
  const auto a = table.add(), b = table.add();
  table.append(a, 9);
  EXPECT_EQ(table.num_fresh_pages(), 3);
  table.release(a);
  EXPECT_EQ(table.num_fresh_pages(), 3);
  table.append(b, 12);
  EXPECT_EQ(table.num_fresh_pages(), 3);
  table.append(b, 4);
  EXPECT_EQ(table.pages(b).back(), 3);
  EXPECT_EQ(table.num_fresh_pages(), 2);
}

TEST(PageTable, AFailedAppendChangesNothing) {
  PageTable table(4, 3);
  const auto a = table.add();
  table.append(a, 5);
  EXPECT_EQ(code_of([&] { table.append(a, 8); }), ErrorCode::context_full);
  EXPECT_EQ(table.length(a), 5);
  EXPECT_EQ(table.pages(a).size(), 2u);
  EXPECT_EQ(table.num_free_pages(), 1);
  EXPECT_EQ(code_of([&] { table.append(a, INT64_MAX); }), ErrorCode::context_full);
  table.append(a, 7);
  EXPECT_EQ(table.num_free_pages(), 0);
}

TEST(PageTable, AForkSharesFullPagesAndCopiesTheRest) {
  PageTable table(4, 8);
  const auto a = table.add();
  table.append(a, 10);
  const PageTable::Fork fork = table.fork(a, 10);
  EXPECT_EQ(fork.copied_slots, 2);
  EXPECT_EQ(fork.source_page, table.pages(a)[2]);
  EXPECT_EQ(fork.target_page, table.pages(fork.request)[2]);
  EXPECT_NE(fork.source_page, fork.target_page);
  EXPECT_EQ(table.pages(fork.request)[0], table.pages(a)[0]);
  EXPECT_EQ(table.num_free_pages(), 4);
  table.release(a);
  EXPECT_EQ(table.num_free_pages(), 5);  // only the page that the fork does not hold
  table.release(fork.request);
  EXPECT_EQ(table.num_free_pages(), 8);
}

TEST(PageTable, AForkAtAPageBorderCopiesNothing) {
  PageTable table(4, 2);
  const auto a = table.add();
  table.append(a, 8);
  const PageTable::Fork fork = table.fork(a, 4);
  EXPECT_EQ(fork.copied_slots, 0);
  EXPECT_EQ(fork.source_page, -1);
  EXPECT_EQ(fork.target_page, -1);
  EXPECT_EQ(table.length(fork.request), 4);
  EXPECT_EQ(code_of([&] { table.fork(a, 5); }), ErrorCode::context_full);  // no page for the copy
  EXPECT_EQ(code_of([&] { table.append(fork.request, 1); }), ErrorCode::context_full);
}

TEST(PageTable, ATruncatedRequestDoesNotWriteIntoASharedPage) {
  PageTable table(4, 8);
  const auto a = table.add();
  table.append(a, 8);
  const auto b = table.fork(a, 8).request;
  table.truncate(a, 6);
  EXPECT_EQ(code_of([&] { table.append(a, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(table.length(a), 6);
  const PageTable::Fork own = table.fork(a, 6);
  EXPECT_EQ(own.copied_slots, 2);
  table.append(own.request, 1);
  table.release(b);
  table.append(a, 1);  // alone again
}

TEST(PageTable, HeldPagesOutliveTheirRequestsAndBeginOthers) {
  PageTable table(4, 4);
  const auto a = table.add();
  table.append(a, 9);
  const std::vector<int32_t> whole(table.pages(a).begin(), table.pages(a).begin() + 2);
  table.hold(whole);
  EXPECT_EQ(table.num_holders(whole[0]), 2);
  table.release(a);
  EXPECT_EQ(table.num_free_pages(), 2);
  const auto b = table.add(whole);
  EXPECT_EQ(table.length(b), 8);
  table.unhold(whole);
  EXPECT_EQ(table.num_free_pages(), 2);
  table.release(b);
  EXPECT_EQ(table.num_free_pages(), 4);
  EXPECT_EQ(table.num_holders(whole[0]), 0);
}

TEST(PageTable, RefusesHoldsOfPagesThatAreFreeAndChangesNothing) {
  PageTable table(4, 4);
  const auto a = table.add();
  table.append(a, 8);
  const int32_t first = table.pages(a)[0], second = table.pages(a)[1];
  for (const int32_t wrong : {-1, 2, 4, 1000}) {
    const std::vector<int32_t> pages{first, wrong};
    EXPECT_EQ(code_of([&] { table.hold(pages); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { table.add(pages); }), ErrorCode::invalid_argument);
  }
  const std::vector<int32_t> one{first}, twice{first, first}, other{first, second};
  EXPECT_EQ(code_of([&] { table.unhold(one); }), ErrorCode::invalid_argument);  // the request's own stays
  table.hold(one);
  EXPECT_EQ(code_of([&] { table.unhold(twice); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { table.unhold(other); }), ErrorCode::invalid_argument);
  EXPECT_EQ(table.num_holders(first), 2);
  table.unhold(one);
  table.release(a);
  EXPECT_EQ(table.num_free_pages(), 4);
}

TEST(PageTable, TruncateGivesBackWholePages) {
  PageTable table(4, 8);
  const auto a = table.add();
  table.append(a, 30);
  table.truncate(a, 9);
  EXPECT_EQ(table.pages(a).size(), 3u);
  EXPECT_EQ(table.num_free_pages(), 5);
  table.truncate(a, 9);
  table.truncate(a, 0);
  EXPECT_EQ(table.num_free_pages(), 8);
  const PageTableView view = table.view({a});
  EXPECT_EQ(view.kv_last_page_len[0], 0);
}

TEST(PageTable, ThePoolMayBeAsLargeAsIdsReach) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  PageTable table(1, kMost);  // memory is for the pages in use
  const auto request = table.add();
  table.append(request, 3);
  EXPECT_EQ(table.num_free_pages(), kMost - 3);
  table.truncate(request, 1);
  table.append(request, 3);
  EXPECT_EQ(std::set<int32_t>(table.pages(request).begin(), table.pages(request).end()),
            (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(code_of([&] { table.append(request, kMost); }), ErrorCode::context_full);
  EXPECT_EQ(table.num_free_pages(), kMost - 4);
}

TEST(PageTable, RefusesUnknownAndReleasedRequests) {
  PageTable table(4, 8);
  const auto a = table.add();
  table.append(a, 3);
  table.release(a);
  EXPECT_EQ(code_of([&] { table.release(a); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { table.append(a, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)table.length(a); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)table.pages(-1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)table.view({7}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { (void)table.fork(99, 0); }), ErrorCode::invalid_argument);
  EXPECT_NE(table.add(), a);  // handles are not used again
  try {
    table.release(a);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("was released"), std::string::npos);
  }
}

TEST(PageTable, RefusesSenselessNumbers) {
  EXPECT_EQ(code_of([] { PageTable(0, 1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { PageTable(1, -1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([] { PageTable(1, int64_t{1} << 31); }), ErrorCode::invalid_argument);
  PageTable table(4, 8);
  const auto a = table.add();
  table.append(a, 5);
  EXPECT_EQ(code_of([&] { table.append(a, -1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { table.truncate(a, 6); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { table.truncate(a, -1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { table.fork(a, 6); }), ErrorCode::invalid_argument);
  EXPECT_EQ(table.length(a), 5);
}

}  // namespace
}  // namespace weft
