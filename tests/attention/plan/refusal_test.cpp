// Every mistake in what plan is given has its code, and a message that names the argument.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/attention/plan/plan_support.h"

namespace weft::test::refusal {
namespace {

struct Given {
  KernelTraits traits = cpu_like_traits(Keys::window);
  Batch batch;
  PlanInput input;
  std::vector<int32_t> own, indptr, last, shared_rows, shared_id{9}, shared_indptr{0, 1}, shared_last{16};
  PlanBounds bounds{.max_requests = 4,
                    .max_rows = 8,
                    .max_pages = 40,
                    .max_kv_len = 200,
                    .page_size = 16,
                    .num_qo_heads = 32,
                    .num_kv_heads = 8,
                    .workers = 4};
  std::vector<Level> levels;

  // Page 9 before both requests, as a level of its own.
  void as_levels() {
    shared_rows = {0, input.qo_indptr.back()};
    const PageTableView first{16, input.pages.num_pages, shared_indptr, shared_id, shared_last};
    levels = {{shared_rows, first}, {input.qo_indptr, input.pages}};
    input.levels = levels;
    input.pages = {};
  }
};

struct Mistake {
  const char* name;
  ErrorCode code;
  const char* mentions;
  std::function<void(Given&)> make;
};

void as_ragged(Given& g) {
  g.traits = cpu_like_traits(Keys::window, KvForm::ragged);
  g.batch.form = KvForm::ragged;
  g.input = g.batch.input();
}
void as_padded(Given& g) {
  g.traits = cpu_like_traits(Keys::window, KvForm::padded);
  g.batch.form = KvForm::padded;
  g.input = g.batch.input();
}

const Mistake kMistakes[] = {
    {"NoKvHeads", ErrorCode::invalid_argument, "num_kv_heads", [](Given& g) { g.input.num_kv_heads = 0; }},
    {"NoQoHeads", ErrorCode::invalid_argument, "num_qo_heads", [](Given& g) { g.input.num_qo_heads = 0; }},
    {"HeadsDoNotDivide", ErrorCode::invalid_argument, "multiple", [](Given& g) { g.input.num_kv_heads = 5; }},
    {"FewerQoHeads", ErrorCode::invalid_argument, "multiple", [](Given& g) { g.input.num_kv_heads = 64; }},
    {"NegativeWorkers", ErrorCode::invalid_argument, "num_workers", [](Given& g) { g.input.num_workers = -1; }},
    {"TooManyWorkers", ErrorCode::invalid_argument, "num_workers", [](Given& g) { g.input.num_workers = 1 << 20; }},
    {"UnknownMode", ErrorCode::invalid_argument, "mode", [](Given& g) { g.input.mode = static_cast<PlanMode>(9); }},
    {"NoQoIndptr", ErrorCode::invalid_indptr, "qo_indptr", [](Given& g) { g.input.qo_indptr = {}; }},
    {"QoIndptrStart", ErrorCode::invalid_indptr, "qo_indptr[0] = 1", [](Given& g) { g.batch.qo_indptr[0] = 1; }},
    {"QoIndptrFalls", ErrorCode::invalid_indptr, "qo_indptr[2] = 0", [](Given& g) { g.batch.qo_indptr[2] = 0; }},
    {"QoIndptrWraps", ErrorCode::invalid_indptr, "qo_indptr[2]",
     [](Given& g) { g.batch.qo_indptr[1] = INT_MAX, g.batch.qo_indptr[2] = INT_MIN; }},
    {"NoPages", ErrorCode::invalid_argument, "pages", [](Given& g) { g.input.pages = {}; }},
    {"PageSizeZero", ErrorCode::invalid_argument, "page_size", [](Given& g) { g.input.pages.page_size = 0; }},
    {"NegativePool", ErrorCode::invalid_argument, "num_pages", [](Given& g) { g.input.pages.num_pages = -1; }},
    {"PageIndptrStart", ErrorCode::invalid_indptr, "kv_page_indptr[0]", [](Given& g) { g.batch.kv_indptr[0] = 2; }},
    {"PageIndptrFalls", ErrorCode::invalid_indptr, "kv_page_indptr[2]", [](Given& g) { g.batch.kv_indptr[2] = 1; }},
    {"PageIndptrLength", ErrorCode::invalid_indptr, "kv_page_indptr: has 2",
     [](Given& g) { g.input.pages.kv_page_indptr = g.input.pages.kv_page_indptr.first(2); }},
    {"PageIndptrEnd", ErrorCode::invalid_indptr, "kv_page_indices has",
     [](Given& g) { g.input.pages.kv_page_indices = g.input.pages.kv_page_indices.first(3); }},
    {"NegativePage", ErrorCode::invalid_page, "kv_page_indices[1] = -1", [](Given& g) { g.batch.page_ids[1] = -1; }},
    {"PageBeyondPool", ErrorCode::invalid_page, "allowed are 0 to 9", [](Given& g) { g.batch.page_ids[2] = 10; }},
    {"PageOfAnEmptyPool", ErrorCode::invalid_page, "kv_page_indices[0]", [](Given& g) { g.input.pages.num_pages = 0; }},
    {"LastPageEmpty", ErrorCode::invalid_page, "kv_last_page_len[0] = 0",
     [](Given& g) { g.batch.last_page_len[0] = 0; }},
    {"LastPageTooFull", ErrorCode::invalid_page, "kv_last_page_len[1] = 17",
     [](Given& g) { g.batch.last_page_len[1] = 17; }},
    {"LastPageOfNoPages", ErrorCode::invalid_page, "request without pages",
     [](Given& g) {
       g.batch.kv = {100, 0};
       g.input = g.batch.input();
       g.batch.last_page_len[1] = 3;
     }},
    {"LastPageCount", ErrorCode::invalid_argument, "kv_last_page_len: has 1",
     [](Given& g) { g.input.pages.kv_last_page_len = g.input.pages.kv_last_page_len.first(1); }},
    {"RaggedForAPagedKernel", ErrorCode::invalid_argument, "kv_indptr", [](Given& g) { g.input.kv_indptr = g.own; }},
    {"PaddedForAPagedKernel", ErrorCode::invalid_argument, "kv_len", [](Given& g) { g.input.kv_len = g.own; }},
    {"MaxLenForAPagedKernel", ErrorCode::invalid_argument, "max_kv_len", [](Given& g) { g.input.max_kv_len = 5; }},
    {"PagesForARaggedKernel", ErrorCode::invalid_argument, "pages",
     [](Given& g) {
       const PageTableView pages = g.input.pages;
       g.traits = cpu_like_traits(Keys::window, KvForm::ragged);
       g.input.pages = pages;
     }},
    {"NoKvIndptr", ErrorCode::invalid_indptr, "kv_indptr", [](Given& g) { as_ragged(g), g.input.kv_indptr = {}; }},
    {"KvIndptrLength", ErrorCode::invalid_indptr, "kv_indptr",
     [](Given& g) { as_ragged(g), g.input.kv_indptr = g.input.kv_indptr.first(2); }},
    {"KvIndptrFalls", ErrorCode::invalid_indptr, "kv_indptr[2]",
     [](Given& g) { as_ragged(g), g.batch.kv_indptr[2] = 0; }},
    {"KvLenCount", ErrorCode::invalid_argument, "kv_len",
     [](Given& g) { as_padded(g), g.input.kv_len = g.input.kv_len.first(1); }},
    {"KvLenNegative", ErrorCode::invalid_argument, "kv_len[1] = -2",
     [](Given& g) { as_padded(g), g.batch.kv_len[1] = -2; }},
    {"KvLenBeyondTensor", ErrorCode::invalid_argument, "max_kv_len",
     [](Given& g) { as_padded(g), g.input.max_kv_len = 99; }},
    {"NegativeMaxKvLen", ErrorCode::invalid_argument, "max_kv_len",
     [](Given& g) { as_padded(g), g.input.max_kv_len = -1; }},
    {"LatentHeads", ErrorCode::invalid_argument, "num_kv_heads", [](Given& g) { g.traits.kv_form = KvForm::latent; }},
    {"TooManyLevels", ErrorCode::unsupported, "levels: required 9",
     [](Given& g) {
       g.levels.assign(9, {g.input.qo_indptr, g.input.pages});
       g.input.levels = g.levels;
     }},
    {"LevelOfOtherRows", ErrorCode::invalid_indptr, "levels[0].qo_indptr: ends at 9",
     [](Given& g) {
       g.as_levels();
       g.levels[0].qo_indptr = g.own;
     }},
    {"LevelsBesidePages", ErrorCode::invalid_argument, "pages: are given beside levels",
     [](Given& g) {
       const PageTableView pages = g.input.pages;
       g.as_levels();
       g.input.pages = pages;
     }},
    {"LevelWithoutPages", ErrorCode::invalid_argument, "levels[0].pages: is missing",
     [](Given& g) {
       g.as_levels();
       g.levels[0].pages = {};
     }},
    {"LevelOfOtherPages", ErrorCode::invalid_argument, "levels[1].pages",
     [](Given& g) {
       g.as_levels();
       g.levels[1].pages.page_size = 8;
       g.batch.last_page_len = {4, 8};
     }},
    {"LevelPageBeyondPool", ErrorCode::invalid_page, "levels[1].kv_page_indices[2] = 10",
     [](Given& g) {
       g.as_levels();
       g.batch.page_ids[2] = 10;
     }},
    {"LevelThatSplitsARequest", ErrorCode::invalid_indptr, "levels[0].qo_indptr[1] = 2: lies within request 1",
     [](Given& g) {
       g.as_levels();
       g.own = {0, 2, 3};
       g.levels[0].qo_indptr = g.own;
       g.levels[0].pages.kv_page_indptr = g.indptr = {0, 1, 1};
       g.levels[0].pages.kv_last_page_len = g.last = {16, 0};
     }},
    {"SharedAtTwoPositions", ErrorCode::invalid_argument, "share pages at one position only",
     [](Given& g) {
       g.as_levels();
       g.levels.push_back(g.levels[0]);
       g.input.levels = g.levels;
     }},
    {"LevelOffTheSplit", ErrorCode::invalid_argument, "begins at position 16; under fixed_split",
     [](Given& g) {
       g.as_levels();
       g.input.mode = PlanMode::fixed_split;
       g.input.fixed_split_size = 64;
     }},
    {"OrderWithoutLevels", ErrorCode::invalid_argument, "request_order",
     [](Given& g) { g.input.request_order = g.own; }},
    {"OrderOfOtherRequests", ErrorCode::invalid_argument, "request_order: has 3",
     [](Given& g) {
       g.as_levels();
       g.input.request_order = g.own;
     }},
    {"OrderThatNamesOneTwice", ErrorCode::invalid_argument, "request_order[1] = 1",
     [](Given& g) {
       g.as_levels();
       g.input.request_order = g.indptr = {1, 1};
     }},
    {"NoWindow", ErrorCode::invalid_argument, "window_left: is missing", [](Given& g) { g.input.scalars = {}; }},
    {"HalfAWindow", ErrorCode::invalid_argument, "window_left = 1.5",
     [](Given& g) {
       g.input.scalars = {{"window_left", 1.5}};
     }},
    {"WindowNaN", ErrorCode::invalid_argument, "window_left",
     [](Given& g) {
       g.input.scalars = {{"window_left", std::nan("")}};
     }},
    {"WindowInfinite", ErrorCode::invalid_argument, "window_left",
     [](Given& g) {
       g.input.scalars = {{"window_left", std::numeric_limits<double>::infinity()}};
     }},
    {"WindowTwice", ErrorCode::invalid_argument, "twice",
     [](Given& g) {
       g.input.scalars = {{"window_left", 1}, {"window_left", 2}};
     }},
    {"UnknownScalar", ErrorCode::invalid_argument, "scalar cap",
     [](Given& g) {
       g.input.scalars.push_back({"cap", 3});
     }},
    {"TooManyBounds", ErrorCode::unsupported, "interval",
     [](Given& g) { g.traits.intervals[0].upper.assign(7, {.q_pos = true}); }},
    {"SplitSizeZero", ErrorCode::invalid_argument, "fixed_split_size = 0",
     [](Given& g) { g.input.mode = PlanMode::fixed_split; }},
    {"SplitSizeOffGranule", ErrorCode::invalid_argument, "granule 64",
     [](Given& g) { g.input.mode = PlanMode::fixed_split, g.input.fixed_split_size = 100; }},
    {"SplitSizeNegative", ErrorCode::invalid_argument, "fixed_split_size = -64",
     [](Given& g) { g.input.mode = PlanMode::fixed_split, g.input.fixed_split_size = -64; }},
    {"SplitSizeWithoutMode", ErrorCode::invalid_argument, "fixed_split_size = 64",
     [](Given& g) { g.input.fixed_split_size = 64; }},
    {"BeyondMaxRequests", ErrorCode::invalid_argument, "max_requests",
     [](Given& g) { g.bounds.max_requests = 1, g.input.bounds = &g.bounds; }},
    {"BeyondMaxRows", ErrorCode::invalid_argument, "max_rows",
     [](Given& g) { g.bounds.max_rows = 2, g.input.bounds = &g.bounds; }},
    {"BeyondMaxPages", ErrorCode::invalid_argument, "max_pages",
     [](Given& g) { g.bounds.max_pages = 9, g.input.bounds = &g.bounds; }},
    {"BeyondMaxKvLen", ErrorCode::invalid_argument, "max_kv_len",
     [](Given& g) { g.bounds.max_kv_len = 99, g.input.bounds = &g.bounds; }},
    {"BeyondWorkers", ErrorCode::invalid_argument, "workers",
     [](Given& g) { g.bounds.workers = 3, g.input.bounds = &g.bounds; }},
    {"BoundsOfOtherHeads", ErrorCode::invalid_argument, "num_kv_heads",
     [](Given& g) { g.bounds.num_kv_heads = 4, g.input.bounds = &g.bounds; }},
    {"BoundsOfOtherPageSize", ErrorCode::invalid_argument, "page_size",
     [](Given& g) { g.bounds.page_size = 8, g.input.bounds = &g.bounds; }},
    {"BeyondMaxLevels", ErrorCode::invalid_argument, "max_levels",
     [](Given& g) { g.as_levels(), g.input.bounds = &g.bounds; }},
    {"BoundsOfOtherMode", ErrorCode::invalid_argument, "mode",
     [](Given& g) { g.bounds.mode = PlanMode::paper, g.input.bounds = &g.bounds; }},
};

class Refusal : public ::testing::TestWithParam<Mistake> {};

TEST_P(Refusal, NamesWhatIsWrong) {
  Given g;
  g.own = {0, 5, 9};
  g.batch.qo = {1, 2};
  g.batch.kv = {100, 40};
  g.batch.scalars = scalars_of(Keys::window, 10);
  g.input = g.batch.input();
  (void)Planner::plan(g.traits, g.input);  // right until the mistake is made
  GetParam().make(g);
  try {
    (void)Planner::plan(g.traits, g.input);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), GetParam().code) << error.what();
    EXPECT_NE(std::string(error.what()).find(GetParam().mentions), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Plan, Refusal, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RefusalOfBounds, NamesTheField) {
  const auto refused = [](ErrorCode code, const char* mentions, auto change) {
    PlanBounds b{.max_requests = 4,
                 .max_rows = 8,
                 .max_pages = 40,
                 .max_kv_len = 200,
                 .page_size = 16,
                 .num_qo_heads = 32,
                 .num_kv_heads = 8,
                 .workers = 4};
    KernelTraits traits = cpu_like_traits();
    (void)Planner::workspace_bytes(traits, b);
    change(b, traits);
    try {
      (void)Planner::workspace_bytes(traits, b);
      ADD_FAILURE() << mentions << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(mentions), std::string::npos) << error.what();
    }
  };
  using B = PlanBounds;
  using T = KernelTraits;
  constexpr ErrorCode kArgument = ErrorCode::invalid_argument;
  refused(kArgument, "max_requests", [](B& b, T&) { b.max_requests = -1; });
  refused(kArgument, "max_rows", [](B& b, T&) { b.max_rows = -1; });
  refused(kArgument, "max_rows", [](B& b, T&) { b.max_rows = int64_t{1} << 40; });
  refused(kArgument, "max_pages", [](B& b, T&) { b.max_pages = -1; });
  refused(kArgument, "max_kv_len", [](B& b, T&) { b.max_kv_len = int64_t{1} << 31; });
  refused(kArgument, "workers", [](B& b, T&) { b.workers = 0; });
  refused(kArgument, "num_qo_heads", [](B& b, T&) { b.num_qo_heads = 0; });
  refused(kArgument, "num_qo_heads", [](B& b, T&) { b.num_kv_heads = 7; });
  refused(kArgument, "page_size", [](B& b, T&) { b.page_size = 0; });
  refused(kArgument, "page_size", [](B&, T& t) { t.kv_form = KvForm::ragged; });
  refused(kArgument, "fixed_split_size", [](B& b, T&) { b.mode = PlanMode::fixed_split; });
  refused(kArgument, "fixed_split_size", [](B& b, T&) { b.fixed_split_size = 64; });
  refused(kArgument, "max_levels", [](B& b, T&) { b.max_levels = 9; });
  refused(kArgument, "max_levels", [](B& b, T& t) {
    t.kv_form = KvForm::ragged;
    b.page_size = 0;
    b.max_pages = 0;
    b.max_levels = 2;
  });
  refused(kArgument, "would be allowed", [](B& b, T&) {
    b.mode = PlanMode::fixed_split;
    b.fixed_split_size = 64;
    b.max_rows = 1 << 30;
    b.max_requests = 1 << 30;
    b.max_kv_len = 1 << 30;
  });
}

TEST(PageIds, AreNotReadAgainWhenTheTableCheckedThem) {
  Batch b;
  b.qo = {1};
  b.kv = {100};
  PlanInput input = b.input();
  PageTable table(16, 7);
  const PageTable::RequestId request = table.add();
  table.append(request, 100);
  input.pages = table.view({request});
  const_cast<int32_t&>(input.pages.kv_page_indices[3]) = 1 << 20;
  try {
    (void)Planner::plan(cpu_like_traits(), input);
  } catch (const InternalError&) {
    // Builds with assertions verify every plan, and find the page that the table vouched for.
  } catch (const Error& error) {
    ADD_FAILURE() << "the ids were read again: " << error.what();
  }
}

TEST(PageIds, AreReadWhereATableCheckedOthersOrForALargerPool) {
  Batch b;
  b.qo = {1};
  b.kv = {100};
  PlanInput input = b.input();
  PageTable table(16, 7);
  const PageTable::RequestId request = table.add();
  table.append(request, 100);
  input.pages.ids_checked = table.view({request}).ids_checked;  // of as many
  EXPECT_NO_THROW((void)Planner::plan(cpu_like_traits(), input));
  b.page_ids[3] = 1 << 20;
  EXPECT_THROW((void)Planner::plan(cpu_like_traits(), input), Error);
  input.pages = table.view({request});
  input.pages.num_pages = 6;
  EXPECT_THROW((void)Planner::plan(cpu_like_traits(), input), Error);
}

}  // namespace
}  // namespace weft::test::refusal
