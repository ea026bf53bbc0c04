// Steps of Quest in one captured graph: tokens are appended, their pages summarised, pages chosen and attended, against
// the CPU's plan of the pages that the CPU chooses. Queries and keys are small integers, so that bounds are exact.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "jit/cuda/runtime.h"
#include "weft/block_sparse.h"
#include "weft/ops.h"
#include "weft/quest.h"

namespace weft::testing {

struct QuestCase {
  int qo_len = 1;
  Mask mask = Mask::none;
  int budget = 8;
};

// One device's tensors of a step. Keys and values, also those of no token, are NaN before they are written.
class QuestDevice {
 public:
  static constexpr int kBatch = 3, kHeads = 2, kGroup = 4, kDim = 64, kPageSize = 4, kPages = 60, kMostPages = 20;

  QuestDevice(Device device, const QuestCase& of, const AttentionKernel& kernel, Stream stream)
      : device_(device), of_(of), kernel_(kernel), stream_(stream) {
    const int64_t rows = kBatch * of.qo_len, heads = kHeads * kGroup;
    q = make(DType::bf16, {rows, heads, kDim});
    k = make(DType::fp32, {rows, kHeads, kDim});
    v = make(DType::fp32, {rows, kHeads, kDim});
    o = make(DType::fp32, {rows, heads, kDim});
    places = make(DType::int32, {rows, 2});
    batch.kv_len = make(DType::int32, {kBatch});
    batch.page_table = make(DType::int32, {kBatch, kMostPages});
    batch.num_pages = kPages;
    batch.qo_len = of.qo_len;
    cache.k = make(DType::bf16, {kPages, kPageSize, kHeads, kDim});
    cache.v = make(DType::bf16, {kPages, kPageSize, kHeads, kDim});
    summaries.min = make(DType::bf16, {kPages, kHeads, kDim});
    summaries.max = make(DType::bf16, {kPages, kHeads, kDim});
    scratch_ = Workspace(device, choose_pages_bytes(kBatch, kHeads, kMostPages));
    const BlockLists lists = pages_to_set({.batch = kBatch,
                                           .qo_len = of.qo_len,
                                           .page_size = kPageSize,
                                           .num_pages = kPages,
                                           .num_kv_heads = kHeads,
                                           .budget = of.budget});
    const BlockSparse blocks = lists.view();
    std::vector<int32_t> qo_indptr;
    for (int r = 0; r <= kBatch; ++r) qo_indptr.push_back(r * of.qo_len);
    const PlanBounds bounds{.max_requests = kBatch,
                            .max_rows = rows,
                            .max_pages = kBatch * kHeads * of.budget,
                            .max_kv_len = of.budget * kPageSize,
                            .page_size = kPageSize,
                            .num_qo_heads = static_cast<int>(heads),
                            .num_kv_heads = kHeads,
                            .workers = 7,
                            .block_rows = of.qo_len,
                            .positions_per_block = 1};
    const Plan plan = kernel.plan({.num_qo_heads = bounds.num_qo_heads,
                                   .num_kv_heads = kHeads,
                                   .qo_indptr = qo_indptr,
                                   .blocks = &blocks,
                                   .num_workers = 7,
                                   .bounds = &bounds});
    plan_ = Workspace(device, plan.workspace_bytes());
    plan.upload(plan_, stream);
    planned_ = kernel.planned_pages(plan_);
  }

  // What a graph may capture.
  void summarise() const { update_page_summaries(cache.k, places, Layout::nhd, summaries, stream_); }
  void attend() {
    choose_pages(q, summaries, batch, planned_, scratch_, stream_);
    kernel_.run(plan_, {.q = q, .kv = cache, .o = o}, stream_);
  }

  void write(const TensorView& to, const void* from) const {
    const auto bytes = static_cast<int64_t>(bytes_of(to));
    if (device_ == Device::cpu())
      std::memcpy(to.data(), from, static_cast<size_t>(bytes));
    else
      cuda::runtime().write(device_, to.data(), std::array{Bytes{from, bytes}}, stream_);
  }
  std::vector<float> output() const {
    std::vector<float> numbers(static_cast<size_t>(o.size()));
    const auto bytes = static_cast<int64_t>(bytes_of(o));
    if (device_ == Device::cpu())
      std::memcpy(numbers.data(), o.data(), static_cast<size_t>(bytes));
    else
      cuda::runtime().read(device_, o.data(), numbers.data(), bytes, stream_);
    return numbers;
  }

  TensorView q, k, v, o, places;
  DeviceBatch batch;
  KvCache cache;
  PageSummaries summaries;

 private:
  static size_t bytes_of(const TensorView& t) { return static_cast<size_t>(t.size() * bits_of(t.dtype()) / 8); }
  TensorView make(DType dtype, std::initializer_list<int64_t> shape) {
    const TensorView form(nullptr, dtype, shape);
    Workspace& memory = memory_.emplace_back(device_, bytes_of(form));
    const TensorView made(memory.data(), dtype, shape, device_);
    write(made, std::vector<char>(memory.bytes(), '\xff').data());
    return made;
  }

  Device device_;
  QuestCase of_;
  AttentionKernel kernel_;
  Stream stream_;
  std::vector<Workspace> memory_;
  Workspace plan_, scratch_;
  PlannedPages planned_;
};

class QuestSteps {
 public:
  QuestSteps(const QuestCase& of, unsigned seed)
      : of_(of),
        stream_(cuda::make_stream(cuda::Card::at(0))),
        random_(seed),
        on_cpu_(build(spec(), Device::cpu())),
        cpu_(Device::cpu(), of, on_cpu_, {}),
        card_(Device::cuda(0), of, build(spec(), Device::cuda(0)), stream()) {
    for (int r = 0; r < QuestDevice::kBatch; ++r) requests_.push_back(table_.add());
  }

  void run(int steps) {
    begin({59, 18, 1});
    next();
    append_on_card();
    card_.summarise();
    card_.attend();  // kernels are made before the capture
    const cuda::Graph graph = cuda::capture(cuda::Card::at(0), stream_.get(), [&] {
      append_on_card();
      card_.summarise();
      card_.attend();
    });
    for (int step = 0; step < steps; ++step) {
      next();
      cuda::launch(graph, stream_.get());
      const std::vector<float> expected = attend_selected();
      stream().synchronize();  // nothing was clamped
      expect_near(card_.output(), expected, step, "the graph");
      cpu_.attend();
      expect_near(cpu_.output(), expected, step, "the CPU's set pages");
    }
  }

 private:
  static constexpr int kBatch = QuestDevice::kBatch;
  Stream stream() const { return Stream::cuda(stream_.get(), 0); }
  AttentionSpec spec() const {
    return {.q_dtype = DType::bf16,
            .kv_dtype = DType::bf16,
            .o_dtype = DType::fp32,
            .head_dim_qk = QuestDevice::kDim,
            .head_dim_vo = QuestDevice::kDim,
            .kv_form = KvForm::block_sparse,
            .mask = of_.mask};
  }

  // So many tokens of each request are there.
  void begin(const std::vector<int>& tokens) {
    std::vector<int32_t> indptr{0};
    for (size_t r = 0; r < tokens.size(); ++r) {
      table_.append(requests_[r], tokens[r]);
      indptr.push_back(indptr.back() + tokens[r]);
    }
    const TensorView form(nullptr, DType::fp32, {indptr.back(), QuestDevice::kHeads, QuestDevice::kDim});
    std::vector<float> k = integers(form), v = integers(form);
    append_paged_kv(TensorView(k.data(), DType::fp32, form.shape()), TensorView(v.data(), DType::fp32, form.shape()),
                    indptr, table_.view(requests_), Layout::nhd, cpu_.cache);
    update_page_summaries(cpu_.cache.k, indptr, table_.view(requests_), Layout::nhd, cpu_.summaries);
    card_.write(card_.cache.k, cpu_.cache.k.data());
    card_.write(card_.cache.v, cpu_.cache.v.data());
    card_.write(card_.summaries.min, cpu_.summaries.min.data());
    card_.write(card_.summaries.max, cpu_.summaries.max.data());
  }
  std::vector<float> integers(const TensorView& of) {
    std::vector<float> numbers(static_cast<size_t>(of.size()));
    for (float& x : numbers) x = static_cast<float>(static_cast<int>(random_() % 9) - 4);
    return numbers;
  }

  // Each request has qo_len tokens more, or begins anew; the CPU has appended and summarised them.
  void next() {
    for (PageTable::RequestId& request : requests_) {
      const int64_t most = QuestDevice::kMostPages * QuestDevice::kPageSize - of_.qo_len;
      if (table_.length(request) > most || random_() % 50 == 0) {
        table_.release(request);
        request = table_.add();
      }
      table_.append(request, of_.qo_len);
    }
    const auto both = [&](const TensorView& cpu, const TensorView& card, const auto& numbers) {
      cpu_.write(cpu, numbers.data());
      card_.write(card, numbers.data());
    };
    const std::vector<float> q = integers(cpu_.q), k = integers(cpu_.k);
    std::vector<uint16_t> q_bits;
    for (const float x : q) q_bits.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
    std::vector<float> v(static_cast<size_t>(cpu_.v.size()));
    std::normal_distribution<float> normal;
    for (float& x : v) x = normal(random_);
    both(cpu_.q, card_.q, q_bits);
    both(cpu_.k, card_.k, k);
    both(cpu_.v, card_.v, v);
    std::vector<int32_t> kv_len, places, page_table(kBatch * QuestDevice::kMostPages, -1);  // what is not read: -1
    for (int r = 0; r < kBatch; ++r) {
      const auto pages = table_.pages(requests_[static_cast<size_t>(r)]);
      const auto tokens = static_cast<int32_t>(table_.length(requests_[static_cast<size_t>(r)]));
      kv_len.push_back(tokens);
      std::copy(pages.begin(), pages.end(), page_table.begin() + r * QuestDevice::kMostPages);
      for (int t = tokens - of_.qo_len; t < tokens; ++t) {
        places.push_back(pages[static_cast<size_t>(t / QuestDevice::kPageSize)]);
        places.push_back(t % QuestDevice::kPageSize);
      }
    }
    both(cpu_.batch.kv_len, card_.batch.kv_len, kv_len);
    both(cpu_.batch.page_table, card_.batch.page_table, page_table);
    both(cpu_.places, card_.places, places);
    append_paged_kv(cpu_.k, cpu_.v, qo_indptr(), table_.view(requests_), Layout::nhd, cpu_.cache);
    cpu_.summarise();
  }
  void append_on_card() {
    append_paged_kv(card_.k, card_.v, card_.places, Layout::nhd, card_.cache, KvScales::none, stream());
  }
  std::vector<int32_t> qo_indptr() const {
    std::vector<int32_t> indptr;
    for (int r = 0; r <= kBatch; ++r) indptr.push_back(r * of_.qo_len);
    return indptr;
  }

  // By a plan of what the CPU chooses.
  std::vector<float> attend_selected() {
    const std::vector<int32_t> indptr = qo_indptr();
    const PageTableView pages = table_.view(requests_);
    const std::vector<int32_t> selected =
        choose_pages(cpu_.q, cpu_.summaries, indptr, pages, QuestDevice::kHeads, of_.budget);
    const BlockLists lists = select_pages(pages, indptr, QuestDevice::kHeads, selected, of_.budget);
    const BlockSparse blocks = lists.view();
    const Plan plan = on_cpu_.plan({.num_qo_heads = QuestDevice::kHeads * QuestDevice::kGroup,
                                    .num_kv_heads = QuestDevice::kHeads,
                                    .qo_indptr = indptr,
                                    .blocks = &blocks});
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    on_cpu_.run(plan, {.q = cpu_.q, .kv = cpu_.cache, .o = cpu_.o}, workspace);
    return cpu_.output();
  }

  static void expect_near(const std::vector<float>& got, const std::vector<float>& expected, int step,
                          const char* what) {
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 0.03) << what << ", step " << step << ", o[" << i << "]";
  }

  QuestCase of_;
  cuda::OwnedStream stream_;
  std::mt19937 random_;
  PageTable table_{QuestDevice::kPageSize, QuestDevice::kPages};
  std::vector<PageTable::RequestId> requests_;
  AttentionKernel on_cpu_;
  QuestDevice cpu_, card_;
};

// Decode; and tokens of which each sees those before it.
inline std::vector<QuestCase> quest_cases() { return {{}, {.qo_len = 3, .mask = Mask::causal, .budget = 6}}; }

}  // namespace weft::testing
