// Items and tables of steps one after another: what is kept of the last step changes nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "decode/fused/cuda/attention_tables.h"
#include "tests/decode/fused/shapes.h"
#include "tests/decode/steps.h"

namespace weft::testing {
namespace {

// Requests that come, grow by a token or a few, are cut back, and go; pages of those that go are others' next.
class RandomSteps {
 public:
  explicit RandomSteps(uint64_t seed) : random_(seed), sequences_(config_of_cache(), options(), DType::fp32) {}

  // Mostly all that are there go on by a token each.
  Step next() {
    if (requests_.empty() || (requests_.size() < 4 && below(12) == 0)) requests_.push_back(sequences_.add());
    if (requests_.size() > 1 && below(12) == 0) {
      const size_t which = below(requests_.size());
      sequences_.release(requests_[which]);
      requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const bool has_many_rows = below(10) == 0;
    Step step;
    for (const Sequences::Id request : requests_) {
      if (below(16) == 0) move_pages(request);
      const auto rows = static_cast<int>(has_many_rows ? 1 + below(2) : 1);
      sequences_.append(request, rows);
      add_rows(step, sequences_, request, std::vector<int32_t>(static_cast<size_t>(rows)));
    }
    return step;
  }

 private:
  static ForwardOptions options() { return {.max_tokens = 1 << 14, .max_sequences = 8, .page_size = 8}; }
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  // As long as before, or longer or shorter by a few tokens, on pages of which some are others.
  void move_pages(Sequences::Id request) {
    const int64_t length = sequences_.length(request),
                  kept = static_cast<int64_t>(below(static_cast<size_t>(length + 1)));
    sequences_.truncate(request, kept);
    const Sequences::Id taker = sequences_.add();
    sequences_.append(taker, 1 + static_cast<int64_t>(below(40)));
    sequences_.append(request, length - kept + static_cast<int64_t>(below(30)));
    sequences_.release(taker);
  }

  std::mt19937_64 random_;
  Sequences sequences_;
  std::vector<Sequences::Id> requests_;
};

template <class T>
void expect_same(const char* what, const std::vector<T>& kept, const std::vector<T>& fresh, int step) {
  ASSERT_EQ(kept.size(), fresh.size()) << what << " of step " << step;
  if (kept.empty()) return;
  ASSERT_EQ(std::memcmp(kept.data(), fresh.data(), kept.size() * sizeof(T)), 0) << what << " of step " << step;
}

TEST(StepItems, AreThoseOfAFreshPlanBitForBit) {
  Partition partition;
  partition.program.num_qo_heads = 6, partition.program.num_kv_heads = 2, partition.program.head_dim = 64;
  for (const int workers : {1, 3, 40})
    for (const int window : {0, 50}) {
      partition.machine = {.workers = workers, .kv_chunk = 32};
      RandomSteps steps(static_cast<uint64_t>(workers + window));
      std::optional<Plan> plan;
      AttentionItems items;
      AttentionTables tables;
      constexpr int kSteps = 600;
      int num_plans = 0;
      for (int i = 0; i < kSteps; ++i) {
        const Step step = steps.next();
        num_plans += update_items(partition, step, window, plan, items);
        const AttentionForm form{
            .num_kv_heads = 2, .group = 3, .window = window, .most_heads = most_heads(kernel_rows(step.rows()), 3)};
        update_tables(items, step, form, tables);
        const AttentionItems fresh_items = attention_items(partition, step, window);
        const AttentionTables fresh = attention_tables(fresh_items, step, form);
        expect_same("requests", items.requests, fresh_items.requests, i);
        expect_same("items", items.items, fresh_items.items, i);
        expect_same("workers' items", items.worker_indptr, fresh_items.worker_indptr, i);
        EXPECT_EQ(items.num_states, fresh_items.num_states);
        expect_same("card items", tables.items, fresh.items, i);
        expect_same("workers' card items", tables.worker_indptr, fresh.worker_indptr, i);
        expect_same("rounds", tables.rounds, fresh.rounds, i);
        expect_same("workers' rounds", tables.round_indptr, fresh.round_indptr, i);
        expect_same("heads", tables.heads, fresh.heads, i);
        expect_same("lists of states", tables.state_indptr, fresh.state_indptr, i);
        expect_same("states", tables.states, fresh.states, i);
        expect_same("pages", tables.pages, fresh.pages, i);
        expect_same("order", tables.by_keys, fresh.by_keys, i);
        EXPECT_EQ(std::pair(tables.num_states, tables.page_size), std::pair(fresh.num_states, fresh.page_size));
        if (HasFatalFailure()) return;
      }
      fmt::print("{} workers, window {}: {} plans in {} steps\n", workers, window, num_plans, kSteps);
      EXPECT_GT(num_plans, 10);
      if (window == 0) {
        EXPECT_LT(num_plans, 2 * kSteps / 3);
      }
    }
}

}  // namespace
}  // namespace weft::testing
