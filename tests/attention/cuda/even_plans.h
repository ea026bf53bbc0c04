// Even plans of random batches, made by a target's kernel from lengths that lie there, beside those of the planner.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/kernel.h"
#include "attention/plan/planner.h"
#include "tests/attention/kernels/target.h"

namespace weft::testing {

// Numbers on a target, as long as this lives.
class OnTarget {
 public:
  OnTarget(const Target& target, std::vector<int32_t> numbers)
      : target_(target), host_(std::move(numbers)), placed_(target.place(host_.data(), bytes())) {}
  ~OnTarget() {
    if (placed_ != nullptr) target_.release(placed_, bytes());
  }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
  void* data() const { return placed_; }
  TensorView view(std::initializer_list<int64_t> shape) const {
    return TensorView(placed_, DType::int32, shape, target_.device());
  }
  std::vector<int32_t> fetch() const {
    std::vector<int32_t> numbers(host_.size());
    target_.fetch(numbers.data(), placed_, bytes());
    return numbers;
  }

 private:
  size_t bytes() const { return host_.size() * sizeof(int32_t); }
  const Target& target_;
  std::vector<int32_t> host_;
  void* placed_;
};

struct EvenBatch {
  std::vector<int> kv;
  int qo_len = 1, workers = 5, page_size = 16, pages_of_request = 40, num_pages = 300;
  PlanBounds bounds() const {
    const auto requests = static_cast<int>(kv.size());
    return {.max_requests = requests,
            .max_rows = requests * qo_len,
            .max_pages = requests * int64_t{pages_of_request},
            .max_kv_len = 600,
            .page_size = page_size,
            .num_qo_heads = 6,
            .num_kv_heads = 3,
            .workers = workers,
            .mode = PlanMode::even};
  }
  DeviceBatch on_device(const TensorView& kv_len, const TensorView& page_table,
                        const std::vector<ScalarArg>& scalars = {}) const {
    return {.kv_len = kv_len,
            .page_table = page_table,
            .num_pages = num_pages,
            .qo_len = qo_len,
            .num_workers = workers,
            .scalars = scalars};
  }
};

inline AttentionKernel even_kernel(const Target& target, bool window = false) {
  AttentionSpec spec{.head_dim_qk = 16, .head_dim_vo = 24, .mask = Mask::causal};
  spec.sliding_window = window;
  return build_on(target, spec);
}

// Ids of a page table's rows, one for each page that a request may have.
inline std::vector<int32_t> random_table(const EvenBatch& b, std::mt19937& random) {
  std::vector<int32_t> table(b.kv.size() * static_cast<size_t>(b.pages_of_request));
  for (int32_t& id : table) id = static_cast<int32_t>(random() % static_cast<unsigned>(b.num_pages));
  return table;
}

// The bytes of the batch's plan: of the planner, given the lengths and ids that are right, and of the kernel, given
// those of the batch and `table`.
struct EvenPlans {
  std::string planner, kernel;
};
inline EvenPlans even_plans(const Target& target, const AttentionKernel& kernel, const EvenBatch& b,
                            const std::vector<int32_t>& right_kv, const std::vector<int32_t>& right_table,
                            const std::vector<int32_t>& table, const std::vector<ScalarArg>& scalars = {}) {
  const PlanBounds bounds = b.bounds();
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, ids, last;
  for (size_t r = 0; r < right_kv.size(); ++r) {
    const int pages = (right_kv[r] + b.page_size - 1) / b.page_size;
    qo_indptr.push_back(qo_indptr.back() + b.qo_len);
    page_indptr.push_back(page_indptr.back() + pages);
    for (int i = 0; i < pages; ++i)
      ids.push_back(right_table[r * static_cast<size_t>(b.pages_of_request) + static_cast<size_t>(i)]);
    last.push_back(right_kv[r] == 0 ? 0 : right_kv[r] - (pages - 1) * b.page_size);
  }
  PlanInput input{.num_qo_heads = 6, .num_kv_heads = 3, .qo_indptr = qo_indptr};
  input.pages = {b.page_size, b.num_pages, page_indptr, ids, last};
  input.num_workers = b.workers;
  input.mode = PlanMode::even;
  input.bounds = &bounds;
  input.scalars = scalars;
  const Plan plan = kernel.plan(input);
  verify(plan);
  Workspace uploaded(target.device(), plan.workspace_bytes()), made(target.device(), plan.workspace_bytes());
  target.poison(made);
  plan.upload(uploaded);
  const OnTarget kv_len(target, b.kv), page_table(target, table);
  const auto requests = static_cast<int64_t>(b.kv.size());
  kernel.plan_on_device(b.on_device(kv_len.view({requests}), page_table.view({requests, b.pages_of_request}), scalars),
                        bounds, made);
  EvenPlans both;
  for (const auto& [bytes, workspace] : {std::pair{&both.planner, &uploaded}, {&both.kernel, &made}}) {
    bytes->resize(plan.impl().bytes.size());
    target.fetch(bytes->data(), workspace->data(), bytes->size());
  }
  return both;
}

// after(): what holds after every plan of lengths that are in range.
inline void expect_even_plans_of_the_planner(const Target& target, const std::function<void()>& after) {
  std::mt19937 random(11);
  for (const bool window : {false, true}) {
    const AttentionKernel kernel = even_kernel(target, window);
    for (int round = 0; round < 8; ++round) {
      EvenBatch b;
      const std::vector<int> requests{1, 2, 7, 40, 3, 0, 1, 90};
      b.workers = std::vector<int>{1, 3, 5, 9, 33, 2, 70, 64}[static_cast<size_t>(round)];
      b.qo_len = round % 3 + 1;
      for (int r = 0; r < requests[static_cast<size_t>(round)]; ++r)
        b.kv.push_back(random() % 5 == 0 ? 0 : b.qo_len + static_cast<int>(random() % 590));
      const std::vector<int32_t> table = random_table(b, random);
      const EvenPlans both =
          even_plans(target, kernel, b, b.kv, table, table,
                     window ? std::vector<ScalarArg>{{"window_left", 100}} : std::vector<ScalarArg>{});
      ASSERT_TRUE(both.kernel == both.planner) << "round " << round;
      after();
    }
  }
}

// clamped(): whether the flag was raised since it was asked last.
inline void expect_clamped_even_plans(const Target& target, const std::function<bool()>& clamped) {
  std::mt19937 random(12);
  const AttentionKernel kernel = even_kernel(target);
  EvenBatch b;
  b.kv = {-5, 100, 601, 20};
  const std::vector<int> right{0, 100, 600, 20};
  const std::vector<int32_t> table = random_table(b, random);
  const EvenPlans lengths = even_plans(target, kernel, b, right, table, table);
  EXPECT_TRUE(lengths.kernel == lengths.planner);
  EXPECT_TRUE(clamped());
  EXPECT_FALSE(clamped());
  b.kv = right;
  std::vector<int32_t> wrong = table, right_table = table;
  wrong[40] = -1;
  right_table[40] = 0;
  wrong[81] = b.num_pages;
  right_table[81] = b.num_pages - 1;
  wrong[39] = 100000;  // of a request without keys: nobody reads it
  const EvenPlans ids = even_plans(target, kernel, b, right, right_table, wrong);
  EXPECT_TRUE(ids.kernel == ids.planner);
  EXPECT_TRUE(clamped());
}

// Two levels: requests 0 and 1 share 32 tokens, and request 2 has more queries than keys of its own.
inline void expect_rows_where_the_plan_says(const Target& target) {
  const AttentionKernel kernel = even_kernel(target);
  const std::vector<int32_t> shared_rows{0, 3, 5}, shared_pages{0, 2, 2}, shared_ids{7, 8}, shared_last{16, 0};
  const std::vector<int32_t> own_rows{0, 1, 3, 5}, own_pages{0, 1, 3, 4}, own_ids{1, 2, 3, 4}, own_last{5, 1, 1};
  const Level levels[] = {{shared_rows, {16, 9, shared_pages, shared_ids, shared_last}},
                          {own_rows, {16, 9, own_pages, own_ids, own_last}}};
  const Plan plan = kernel.plan({.num_qo_heads = 6, .num_kv_heads = 3, .num_workers = 2, .levels = levels});
  Workspace workspace(target.device(), plan.workspace_bytes());
  plan.upload(workspace);
  const OnTarget positions(target, std::vector<int32_t>(5, -1)), places(target, std::vector<int32_t>(10, -1));
  kernel.locate_rows(workspace, positions.view({5}), places.view({5, 2}));
  EXPECT_EQ(positions.fetch(), (std::vector<int32_t>{36, 47, 48, -1, 0}));
  EXPECT_EQ(places.fetch(), (std::vector<int32_t>{1, 4, 2, 15, 3, 0, 0, 0, 4, 0}));
  EXPECT_THROW(kernel.locate_rows(workspace, positions.view({4}), places.view({5, 2})), Error);
}

}  // namespace weft::testing
