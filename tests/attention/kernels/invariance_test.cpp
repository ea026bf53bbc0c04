// fixed_split promises that a request has the same bits alone and in any batch, on any number of workers, with shared
// levels or without; balanced promises no such thing.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "problem.h"
#include "tests/support/sanitizers.h"
#include "weft/levels.h"

namespace weft::test::invariance {
namespace {

using testing::Target;

constexpr int kPageSize = 16, kPages = 127, kKvHeads = 2, kGroup = 4, kHeads = kKvHeads * kGroup;
constexpr int kSplit = 128;

// What the requests' kernel is built for.
struct Attended {
  DType q_dtype = DType::bf16, kv_dtype = DType::bf16;
  int dim = 64;
  int window = -1;     // -1: none
  bool sinks = false;  // the first keys beside the window, as two intervals
  const Target* target = testing::targets().back();
};
constexpr int kSinks = 4;

// As a streaming model's: the first keys, and those of the window.
Variant first_and_window() {
  return {.name = "FirstAndWindow",
          .text = "struct FirstAndWindow {};\n",
          .scalars = {{.name = "window_left", .kind = ScalarKind::integer}},
          .intervals = {{.upper = {{.q_pos = true, .constant = 1}, {.constant = kSinks}}},
                        {.lower = {{.q_pos = true, .scalar = "window_left", .scalar_sign = -1}},
                         .upper = {{.q_pos = true, .constant = 1}}}}};
}

AttentionSpec spec_of(const Attended& s) {
  return {.q_dtype = s.q_dtype,
          .kv_dtype = s.kv_dtype,
          .o_dtype = DType::fp32,
          .head_dim_qk = s.dim,
          .head_dim_vo = s.dim,
          .mask = s.sinks ? Mask::none : Mask::causal,
          .sliding_window = s.window >= 0 && !s.sinks,
          .variant = s.sinks ? first_and_window() : Variant(),
          .kv_scales = s.kv_dtype == DType::int8 ? KvScales::token : KvScales::none};
}

struct Request {
  int qo_len, kv_len;
  std::vector<int32_t> pages;
  unsigned seed;  // of its queries
};

// How requests that share pages are planned.
struct Sharing {
  bool find = false;     // levels are looked for, and taken where they pay
  int forced_pages = 0;  // the first so many pages of the first request are a level of all of them
};

// Numbers are taken from a table: drawing them anew for each run would be most of the time.
double normal_at(size_t i) {
  static const std::vector<double> table = [] {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    std::vector<double> numbers(65521);  // a prime, so that no stride of a tensor meets it
    for (double& x : numbers) x = normal(random);
    return numbers;
  }();
  return table[i % table.size()];
}

// Keys and values of all pages.
struct PagePool {
  std::vector<char> k, v;
  std::vector<float> k_scale, v_scale;
  PagePool(DType dtype, int dim)
      : k_scale(static_cast<size_t>(kPages) * kPageSize * kKvHeads), v_scale(k_scale.size()) {
    const size_t n = k_scale.size() * static_cast<size_t>(dim);
    size_t drawn = 0;
    for (std::vector<char>* side : {&k, &v}) {
      side->resize(n * 4);
      for (size_t i = 0; i < n; ++i, ++drawn) {
        const double x = normal_at(drawn);
        testing::put(side->data(), dtype, static_cast<int64_t>(i), dtype == DType::int8 ? std::rint(40 * x) : x);
      }
    }
    for (std::vector<float>* side : {&k_scale, &v_scale})
      for (float& x : *side) x = static_cast<float>(0.02 + 0.01 * std::abs(normal_at(drawn++)));
  }
};

// Batches of requests over one pool.
class Requests {
 public:
  Requests(PlanMode mode, const PagePool& pool, const Attended& attended = {})
      : mode_(mode), attended_(attended), kernel_(build_on(*attended.target, spec_of(attended))), pool_(pool) {}

  // The bytes of o and lse of each request.
  std::vector<std::string> run(const std::vector<Request>& batch, int workers, const Sharing& sharing = {}) {
    std::vector<int32_t> qo_indptr{0}, indptr{0}, ids, last;
    std::vector<char> q;
    int64_t q_size = 0;
    for (const Request& r : batch) {
      const int64_t begin = q_size;
      q_size += int64_t{r.qo_len} * kHeads * attended_.dim;
      q.resize(static_cast<size_t>(q_size) * 4);
      for (int64_t i = begin; i < q_size; ++i)
        testing::put(q.data(), attended_.q_dtype, i, normal_at(size_t{r.seed} * 7919 + static_cast<size_t>(i - begin)));
      qo_indptr.push_back(qo_indptr.back() + r.qo_len);
      ids.insert(ids.end(), r.pages.begin(), r.pages.end());
      indptr.push_back(static_cast<int32_t>(ids.size()));
      last.push_back((r.kv_len - 1) % kPageSize + 1);
    }
    const int64_t rows = qo_indptr.back(), dim = attended_.dim;
    std::vector<float> o(static_cast<size_t>(rows * kHeads * dim)), lse(static_cast<size_t>(rows) * kHeads);
    PlanInput in{.num_qo_heads = kHeads,
                 .num_kv_heads = kKvHeads,
                 .qo_indptr = qo_indptr,
                 .pages = {kPageSize, kPages, indptr, ids, last},
                 .num_workers = workers,
                 .mode = mode_,
                 .fixed_split_size = mode_ == PlanMode::fixed_split ? kSplit : 0};
    if (attended_.window >= 0) in.scalars = {{"window_left", static_cast<double>(attended_.window)}};
    const SharedLevels levels = sharing.find               ? levels_from_page_tables(kernel_, in)
                                : sharing.forced_pages > 0 ? forced(batch, qo_indptr, sharing.forced_pages)
                                                           : SharedLevels();
    const Plan plan = kernel_.plan(levels.apply(in));
    const Target& target = *attended_.target;
    if (workspace_.bytes() < plan.workspace_bytes())
      workspace_ = Workspace(target.device(), 2 * plan.workspace_bytes());
    AttentionTensors tensors{.q = TensorView(q.data(), attended_.q_dtype, {rows, kHeads, dim}),
                             .kv = {cache(pool_.k), cache(pool_.v)},
                             .o = TensorView(o.data(), DType::fp32, {rows, kHeads, dim}),
                             .lse = TensorView(lse.data(), DType::fp32, {rows, kHeads})};
    if (attended_.kv_dtype == DType::int8) {
      tensors.kv.k_scale = TensorView(pool_.k_scale.data(), DType::fp32, {kPages, kPageSize, kKvHeads, 1});
      tensors.kv.v_scale = TensorView(pool_.v_scale.data(), DType::fp32, {kPages, kPageSize, kKvHeads, 1});
    }
    const testing::Placed placed(target, tensors);
    kernel_.run(plan, placed.tensors(), workspace_, target.stream(team_));
    placed.fetch();
    std::vector<std::string> bytes;
    for (size_t r = 0; r < batch.size(); ++r) {
      const size_t begin = static_cast<size_t>(qo_indptr[r]) * kHeads,
                   n = static_cast<size_t>(batch[r].qo_len) * kHeads, width = static_cast<size_t>(dim);
      bytes.emplace_back(reinterpret_cast<const char*>(o.data() + begin * width), n * width * sizeof(float));
      bytes.back().append(reinterpret_cast<const char*>(lse.data() + begin), n * sizeof(float));
    }
    return bytes;
  }

 private:
  TensorView cache(const std::vector<char>& side) const {
    return TensorView(side.data(), attended_.kv_dtype, {kPages, kPageSize, kKvHeads, attended_.dim});
  }
  static SharedLevels forced(const std::vector<Request>& batch, const std::vector<int32_t>& qo_indptr, int pages) {
    std::vector<int32_t> parent{-1}, indptr{0, pages}, ids(batch[0].pages.begin(), batch[0].pages.begin() + pages),
        last{kPageSize}, node;
    for (const Request& r : batch) {
      node.push_back(static_cast<int32_t>(parent.size()));
      parent.push_back(0);
      ids.insert(ids.end(), r.pages.begin() + pages, r.pages.end());
      indptr.push_back(static_cast<int32_t>(ids.size()));
      last.push_back((r.kv_len - 1) % kPageSize + 1);
    }
    return levels_from_prefix_tree({kPageSize, kPages, parent, indptr, ids, last, node}, qo_indptr);
  }

  PlanMode mode_;
  Attended attended_;
  AttentionKernel kernel_;
  const PagePool& pool_;
  WorkerTeam team_{2};
  Workspace workspace_;
};

// Requests that are watched: a decode of several chunks, one of a single chunk, some appended tokens, a prefill.
std::vector<Request> watched() {
  std::vector<Request> all;
  for (const auto& [qo_len, kv_len] : {std::pair{1, 900}, {1, 100}, {3, 400}, {60, 300}}) {
    Request r{qo_len, kv_len, {}, static_cast<unsigned>(all.size())};
    for (int i = 0; i < (kv_len + kPageSize - 1) / kPageSize; ++i)
      r.pages.push_back(static_cast<int32_t>((i * 7 + static_cast<int>(all.size()) * 31) % kPages));
    all.push_back(r);
  }
  return all;
}

// The different results of each watched request over random batches.
std::vector<std::set<std::string>> results(Requests& pool, int batches) {
  const std::vector<Request> fixed = watched();
  std::vector<std::set<std::string>> seen(fixed.size());
  for (size_t w = 0; w < fixed.size(); ++w) seen[w].insert(pool.run({fixed[w]}, 1)[0]);
  std::mt19937 random(11);
  for (int i = 0; i < batches; ++i) {
    std::vector<Request> batch;
    std::map<size_t, size_t> place;  // of a watched request
    const int others = static_cast<int>(random() % 6);
    const auto add_others = [&](int n) {
      for (; n > 0; --n) {
        Request r{random() % 3 == 0 ? 1 + static_cast<int>(random() % 20) : 1,
                  1 + static_cast<int>(random() % 500),
                  {},
                  1000u + static_cast<unsigned>(random() % 1000)};
        const std::vector<int32_t>& leader = fixed[random() % fixed.size()].pages;
        const size_t pages = static_cast<size_t>((r.kv_len + kPageSize - 1) / kPageSize);
        if (random() % 2 == 0) r.pages.assign(leader.begin(), leader.begin() + std::min(pages, leader.size()));
        while (r.pages.size() < pages) r.pages.push_back(static_cast<int32_t>(random() % kPages));
        batch.push_back(r);
      }
    };
    for (size_t w = 0; w < fixed.size(); ++w) {
      if (random() % 2 == 0) add_others(others / 2);
      if (random() % 3 == 0) continue;
      place[w] = batch.size();
      batch.push_back(fixed[w]);
    }
    add_others(others);
    if (batch.empty()) continue;
    const std::vector<std::string> bytes =
        pool.run(batch, 1 + static_cast<int>(random() % 12), {.find = random() % 2 == 0});
    for (const auto& [w, at] : place) seen[w].insert(bytes[at]);
  }
  return seen;
}

TEST(Invariance, FixedSplitGivesOneResultInAThousandBatches) {
  const PagePool pages(DType::bf16, 64);
  Requests pool(PlanMode::fixed_split, pages);
  constexpr int kBatches = testing::kUnderSanitizer ? 100 : 1000;
  for (const std::set<std::string>& seen : results(pool, kBatches)) EXPECT_EQ(seen.size(), 1u);
}

// Requests with 1,024 tokens in common and some of their own: decodes, appended tokens, prefills that begin in what is
// shared.
constexpr int kSharedTokens = 1024, kSharedPages = kSharedTokens / kPageSize;
std::vector<Request> sharing_requests(bool decode_only) {
  std::mt19937 random(5);
  std::vector<Request> all;
  for (int i = 0; i < (testing::kUnderSanitizer ? 6 : 16); ++i) {  // each kind twice at least
    const int own = 1 + static_cast<int>(random() % 128);
    const int qo_len = decode_only || i % 3 == 0 ? 1 : i % 3 == 1 ? 1 + i % 5 : own + static_cast<int>(random() % 40);
    Request r{qo_len, kSharedTokens + own, {}, 50u + static_cast<unsigned>(i)};
    for (int page = 0; page < kSharedPages; ++page) r.pages.push_back((page * 7) % kPages);
    while (static_cast<int>(r.pages.size()) * kPageSize < r.kv_len)
      r.pages.push_back(static_cast<int32_t>(random() % kPages));
    all.push_back(r);
  }
  return all;
}

// How many requests' results differ between alone, a batch and a batch with levels, on several numbers of workers.
int num_different(const PagePool& pages, const Attended& attended, bool decode_only) {
  Requests pool(PlanMode::fixed_split, pages, attended);
  const std::vector<Request> batch = sharing_requests(decode_only);
  std::vector<std::string> alone;
  for (const Request& r : batch) alone.push_back(pool.run({r}, 1)[0]);
  int different = 0;
  for (const auto& [workers, forced_pages] :
       {std::pair{3, 0}, {1, kSharedPages}, {3, kSharedPages / 2}, {16, kSharedPages}}) {
    const std::vector<std::string> bytes = pool.run(batch, workers, {.forced_pages = forced_pages});
    for (size_t r = 0; r < batch.size(); ++r) different += bytes[r] != alone[r];
  }
  return different;
}

constexpr std::pair<DType, DType> kInvariantTypes[] = {
    {DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::int8}, {DType::bf16, DType::fp8_e4m3}};

// Of cases that differ in numbers alone a sanitizer watches every second; one of threads, whose work is dealt alike in
// all of them, the first.
bool is_watched(unsigned number) {
  return !testing::kUnderSanitizer || (testing::kUnderThreadSanitizer ? number == 0 : number % 2 == 0);
}

TEST(Invariance, FixedSplitGivesAWindowsRowsTheSameBitsWithLevels) {
  unsigned index = 0, number = 0;
  for (const auto& [q_dtype, kv_dtype] : kInvariantTypes) {
    const PagePool pages(kv_dtype, 64);
    for (const int window : {533, 700, 1100})
      for (const Target* target : testing::targets_of_case(index++)) {
        const bool sinks = index % 2 == 0, decode_only = index % 3 == 0;
        if (!is_watched(number++)) continue;
        EXPECT_EQ(num_different(pages, {q_dtype, kv_dtype, 64, window, sinks, target}, decode_only), 0)
            << to_string(kv_dtype) << " window " << window << " sinks " << sinks << " decode only " << decode_only
            << " " << target->name();
      }
  }
}

// Where a tile is scaled does not follow from whether its other rows see all of it: 1 / sqrt(64) would hide that.
TEST(Invariance, FixedSplitGivesTheSameBitsWithLevelsWhateverTheScale) {
  unsigned number = 0, taken = 0;
  for (const int dim : {96, 128})
    for (const auto& [q_dtype, kv_dtype] : kInvariantTypes) {
      const PagePool pages(kv_dtype, dim);
      for (const int window : {-1, 700}) {
        // Under a sanitizer half of them, in which each size and each type meets both.
        if (std::popcount(number++ & 0b1011u) % 2 != 0 && testing::kUnderSanitizer) continue;
        if (testing::kUnderThreadSanitizer && !is_watched(taken++)) continue;
        EXPECT_EQ(num_different(pages, {q_dtype, kv_dtype, dim, window}, false), 0)
            << to_string(kv_dtype) << " dim " << dim << " window " << window;
      }
    }
}

TEST(Invariance, BalancedDoesNotPromiseIt) {
  const PagePool pages(DType::bf16, 64);
  Requests pool(PlanMode::balanced, pages);
  size_t most = 0;
  for (const std::set<std::string>& seen : results(pool, 50)) most = std::max(most, seen.size());
  EXPECT_GT(most, 1u);
}

}  // namespace
}  // namespace weft::test::invariance
