#include "serve/prefix_cache.h"

#include "tests/serve/fake_model.h"

namespace weft::serve {
namespace {

using testing::FakeModel;
using testing::prompt_of;

struct PrefixCacheTest : ::testing::Test {
  FakeModel model{4, 64};
  PrefixCache cache{model};

  // A sequence that computed the tokens, as far as they are not cached.
  PrefixCache::Match compute(const std::string& salt, const std::vector<int32_t>& tokens) {
    const PrefixCache::Match found = cache.match(salt, tokens);
    cache.lock(found.node);
    const auto sequence = cache.begin(found);
    if (const auto rest = std::span(tokens).subspan(static_cast<size_t>(found.tokens)); !rest.empty()) {
      const ModelRunner::Piece piece{sequence, rest, 0};
      model.run({&piece, 1}, {});
    }
    const PrefixCache::Match held = cache.extend(salt, found, tokens, sequence);
    model.release(sequence);
    return held;
  }
  void keep(const std::string& salt, const std::vector<int32_t>& tokens) { cache.unlock(compute(salt, tokens).node); }
  void expect_pages_add_up() const { EXPECT_EQ(model.num_free_pages() + cache.held_pages(), 64); }
};

TEST_F(PrefixCacheTest, FindsTheLongestBeginningInWholePages) {
  keep("", prompt_of(22));
  EXPECT_EQ(cache.held_pages(), 5);
  EXPECT_EQ(cache.match("", prompt_of(22)).tokens, 20);
  EXPECT_EQ(cache.match("", prompt_of(11)).tokens, 8);
  EXPECT_EQ(cache.match("", prompt_of(3)).tokens, 0);
  EXPECT_EQ(cache.match("", prompt_of(22, 2)).tokens, 0);
  EXPECT_EQ(cache.match("", {}).tokens, 0);
  expect_pages_add_up();
}

TEST_F(PrefixCacheTest, SplitsWherePromptsPart) {
  std::vector<int32_t> other = prompt_of(24);
  other[13] = 49;
  keep("", prompt_of(24));
  keep("", other);
  EXPECT_EQ(cache.held_pages(), 6 + 3);  // three pages are shared
  EXPECT_EQ(cache.match("", other).tokens, 24);
  EXPECT_EQ(cache.match("", prompt_of(24)).tokens, 24);
  EXPECT_EQ(cache.describe().size(), 3u);
  expect_pages_add_up();
}

TEST_F(PrefixCacheTest, ShortensAMatchToTheNodesThatItLeaves) {
  std::vector<int32_t> other = prompt_of(24);
  other[13] = 49;
  keep("", prompt_of(24));
  keep("", other);  // nodes end at 12 and at 24
  const PrefixCache::Match whole = cache.match("", other);
  for (const int64_t tokens : {24, 16, 12, 8, 4}) {
    const PrefixCache::Match part = cache.lock(cache.shortened(whole, tokens));
    EXPECT_EQ(part.tokens, tokens);
    const auto sequence = cache.begin(part);
    EXPECT_EQ(model.pages(sequence).size(), static_cast<size_t>(tokens / 4));
    model.release(sequence);
    cache.unlock(part.node);
    EXPECT_EQ(cache.match("", other).tokens, 24);
  }
  EXPECT_EQ(cache.shortened(whole, 0).node, nullptr);
  EXPECT_EQ(cache.evict(100), 9);
}

TEST_F(PrefixCacheTest, KeepsSaltsApart) {
  keep("a", prompt_of(8));
  EXPECT_EQ(cache.match("b", prompt_of(8)).tokens, 0);
  keep("b", prompt_of(8));
  EXPECT_EQ(cache.held_pages(), 4);
}

TEST_F(PrefixCacheTest, EvictsTheLeastRecentlyUsedFromTheEnd) {
  keep("", prompt_of(16, 1));
  keep("", prompt_of(16, 2));
  cache.match("", prompt_of(16, 1));
  EXPECT_EQ(cache.evict(3), 3);
  EXPECT_EQ(cache.match("", prompt_of(16, 1)).tokens, 16);
  EXPECT_EQ(cache.match("", prompt_of(16, 2)).tokens, 4);
  expect_pages_add_up();
  EXPECT_EQ(cache.evict(100), 5);
  EXPECT_EQ(model.num_free_pages(), 64);
  EXPECT_EQ(model.num_sequences(), 0u);
  EXPECT_TRUE(cache.describe().empty());
}

// Whatever is done with a beginning counts as its use: it is computed, found in part, or cut in two.
TEST_F(PrefixCacheTest, WhatIsComputedIsUsedThen) {
  keep("", prompt_of(16, 1));
  cache.match("", prompt_of(16, 1));
  keep("", prompt_of(16, 2));
  EXPECT_EQ(cache.evict(4), 4);
  EXPECT_EQ(cache.match("", prompt_of(16, 2)).tokens, 16);
}

TEST_F(PrefixCacheTest, ABeginningOfWhichAPartIsFoundIsUsedThen) {
  keep("", prompt_of(16, 1));
  keep("", prompt_of(16, 2));
  EXPECT_EQ(cache.match("", prompt_of(8, 1)).tokens, 8);
  EXPECT_EQ(cache.evict(4), 4);
  EXPECT_EQ(cache.match("", prompt_of(16, 1)).tokens, 16);
}

TEST_F(PrefixCacheTest, ABeginningThatIsCutKeepsItsAge) {
  const PrefixCache::Match old = compute("", prompt_of(16, 2));  // locked, so that it is there in the end
  std::vector<int32_t> other = prompt_of(24);
  other[13] = 49;
  keep("", prompt_of(24));
  keep("", other);  // a beginning of 12 tokens, and two ends
  EXPECT_EQ(cache.evict(6), 6);
  cache.unlock(old.node);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.match("", prompt_of(24)).tokens, 12);
  EXPECT_EQ(cache.match("", prompt_of(16, 2)).tokens, 12);
}

TEST_F(PrefixCacheTest, FindsTheNodeThatEndsWithinSoManyTokens) {
  std::vector<int32_t> other = prompt_of(24);
  other[13] = 49;
  keep("", prompt_of(24));
  keep("", other);  // nodes end at 12 and at 24
  PrefixCache::Node* whole = cache.match("", other).node;
  PrefixCache::Node* beginning = cache.shortened(cache.match("", other), 12).node;
  EXPECT_EQ(cache.within(whole, 25), whole);
  EXPECT_EQ(cache.within(whole, 24), whole);
  EXPECT_EQ(cache.within(whole, 23), beginning);
  EXPECT_EQ(cache.within(whole, 12), beginning);
  EXPECT_NE(cache.within(whole, 11), beginning);
}

TEST_F(PrefixCacheTest, DoesNotEvictWhatIsLocked) {
  const PrefixCache::Match held = compute("", prompt_of(16));
  EXPECT_EQ(cache.evictable_pages(), 0);
  EXPECT_EQ(cache.evict(1), 0);
  std::vector<int32_t> longer = prompt_of(24);
  keep("", longer);
  EXPECT_EQ(cache.evictable_pages(), 2);
  EXPECT_EQ(cache.evict(100), 2);
  cache.unlock(held.node);
  EXPECT_EQ(cache.evict(100), 4);
  expect_pages_add_up();
}

TEST_F(PrefixCacheTest, LocksNoMoreThanTheMatch) {
  keep("", prompt_of(24));
  const PrefixCache::Match held = cache.lock(cache.match("", prompt_of(8)));
  EXPECT_EQ(cache.evictable_pages(), 4);
  EXPECT_EQ(cache.evict(100), 4);
  EXPECT_EQ(cache.match("", prompt_of(24)).tokens, 8);
  cache.unlock(held.node);
  expect_pages_add_up();
}

// Two that computed the same at once: the second one's pages stay its own.
TEST_F(PrefixCacheTest, KeepsOnePageForTokensThatWereComputedTwice) {
  const auto first = model.add({}), second = model.add({});
  const std::vector<int32_t> tokens = prompt_of(16);
  for (const auto sequence : {first, second}) {
    const ModelRunner::Piece piece{sequence, tokens, 0};
    model.run({&piece, 1}, {});
  }
  const PrefixCache::Match held = cache.extend("", {}, tokens, first);
  EXPECT_EQ(held.tokens, 16);
  EXPECT_EQ(cache.extend("", {}, tokens, second).node, nullptr);
  model.release(first), model.release(second);
  cache.unlock(held.node);
  expect_pages_add_up();
}

TEST_F(PrefixCacheTest, GivesAllPagesBackWhenItEnds) {
  {
    PrefixCache own(model);
    const auto sequence = model.add({});
    const std::vector<int32_t> tokens = prompt_of(16);
    const ModelRunner::Piece piece{sequence, tokens, 0};
    model.run({&piece, 1}, {});
    own.extend("", {}, tokens, sequence);
    model.release(sequence);
    EXPECT_EQ(model.num_free_pages(), 60);
  }
  EXPECT_EQ(model.num_free_pages(), 64);
}

}  // namespace
}  // namespace weft::serve
