// `weft bench attention --device cuda:0`: decode as a share of a plain read of as many bytes, prefill as a share of what warps
// multiply on registers. Batches lie side by side in memory larger than the card's cache; runs are nodes of a graph.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "attention/kernel.h"
#include "bench/batch.h"
#include "bench/cuda/card.h"
#include "bench/measure.h"
#include "device/cuda/memory.h"

namespace weft::bench {
namespace {

constexpr int kMostRuns = 16;

// One batch of requests over some part of the pool.
struct CardBatch {
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_indices, last_page_len;
  PlanInput input;
  PlanBounds bounds;
  Workspace q, o, plan;
  AttentionTensors tensors;
  int64_t cache_bytes = 0;  // that are read
};

struct Row {
  std::string name;
  Shape shape;
  std::vector<int> qo_lens, kv_lens;
  int page_size = 16;
  PlanMode mode = PlanMode::balanced;
};

int64_t pool_bytes_of(const Row& row) {
  int64_t pages = 0;
  for (const int len : row.kv_lens) pages += (len + row.page_size - 1) / row.page_size;
  return pages * row.page_size * row.shape.kv_heads * row.shape.head_dim * 4;
}

void fill(CardBench& bench, const Row& row, const AttentionKernel& kernel, char* cache, unsigned seed,
          CardBatch& batch) {
  for (size_t r = 0; r < row.kv_lens.size(); ++r) {
    const int pages = (row.kv_lens[r] + row.page_size - 1) / row.page_size;
    batch.qo_indptr.push_back(batch.qo_indptr.back() + row.qo_lens[r]);
    batch.page_indptr.push_back(batch.page_indptr.back() + pages);
    batch.last_page_len.push_back(row.kv_lens[r] - (pages - 1) * row.page_size);
    batch.cache_bytes += int64_t{row.kv_lens[r]} * row.shape.kv_heads * row.shape.head_dim * 4;
  }
  const int64_t pages = batch.page_indptr.back(), rows = batch.qo_indptr.back();
  batch.page_indices.resize(static_cast<size_t>(pages));
  std::iota(batch.page_indices.begin(), batch.page_indices.end(), 0);
  std::shuffle(batch.page_indices.begin(), batch.page_indices.end(), std::mt19937(seed));
  batch.input = {.num_qo_heads = row.shape.qo_heads, .num_kv_heads = row.shape.kv_heads, .qo_indptr = batch.qo_indptr};
  batch.input.pages = {row.page_size, pages, batch.page_indptr, batch.page_indices, batch.last_page_len};
  batch.input.mode = row.mode;
  if (row.mode == PlanMode::fixed_split) batch.input.fixed_split_size = 512;
  batch.bounds = {.max_requests = static_cast<int>(row.kv_lens.size()),
                  .max_rows = rows,
                  .max_qo_len = *std::max_element(row.qo_lens.begin(), row.qo_lens.end()),
                  .max_pages = pages,
                  .max_kv_len = *std::max_element(row.kv_lens.begin(), row.kv_lens.end()),
                  .page_size = row.page_size,
                  .num_qo_heads = row.shape.qo_heads,
                  .num_kv_heads = row.shape.kv_heads,
                  .workers = kernel.impl().traits.default_workers,
                  .mode = row.mode,
                  .fixed_split_size = batch.input.fixed_split_size};
  batch.input.bounds = &batch.bounds;  // a run is captured
  const int64_t q_bytes = rows * row.shape.qo_heads * row.shape.head_dim * 2;
  batch.q = Workspace(bench.device(), static_cast<size_t>(q_bytes));
  batch.o = Workspace(bench.device(), static_cast<size_t>(q_bytes));
  const TensorView of_q(batch.q.data(), DType::bf16, {rows, row.shape.qo_heads, row.shape.head_dim}, bench.device());
  const TensorView of_o(batch.o.data(), DType::bf16, {rows, row.shape.qo_heads, row.shape.head_dim}, bench.device());
  cuda::api::Stream stream = static_cast<cuda::api::Stream>(bench.stream().handle());
  cuda::copy_on_card(bench.card(), batch.q.data(), bench.pool(), static_cast<size_t>(q_bytes), stream);
  const TensorView k(cache, DType::bf16, {pages, row.page_size, row.shape.kv_heads, row.shape.head_dim},
                     bench.device());
  const TensorView v(cache + k.size() * 2, DType::bf16, k.shape(), bench.device());
  batch.tensors.q = of_q;
  batch.tensors.kv = {k, v};
  batch.tensors.o = of_o;
  const Plan plan = kernel.plan(batch.input);
  batch.plan = Workspace(bench.device(), plan.workspace_bytes());
  plan.upload(batch.plan, bench.stream());
  bench.stream().synchronize();
}

double seconds_of(CardBench& bench, const Row& row, const AttentionKernel& kernel, double& bytes) {
  const int64_t size = pool_bytes_of(row);
  const int count =
      static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(bench.pool_bytes()) / size, 1, kMostRuns));
  std::vector<std::unique_ptr<CardBatch>> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(std::make_unique<CardBatch>());
    fill(bench, row, kernel, bench.pool() + i * size, static_cast<unsigned>(i), *batches.back());
  }
  bytes = static_cast<double>(batches[0]->cache_bytes);
  return bench.time(std::max(count, 8), [&](int i) {
    CardBatch& batch = *batches[static_cast<size_t>(i) % batches.size()];
    kernel.run(batch.plan, batch.tensors, bench.stream());
  });
}

void measure_decode(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  const Shape llama{32, 8, 128};
  const auto same = [](int n, int len) { return std::vector<int>(static_cast<size_t>(n), len); };
  std::vector<Row> rows;
  for (const auto& [n, len] : {std::pair{1, 1024}, {1, 8192}, {16, 1024}, {16, 8192}, {64, 1024}, {64, 4096}})
    rows.push_back({fmt::format("batch{} kv{}", n, len), llama, same(n, 1), same(n, len)});
  rows.push_back({"batch16 kv8192 page1", llama, same(16, 1), same(16, 8192), 1});
  rows.push_back({"batch16 kv8192 page64", llama, same(16, 1), same(16, 8192), 64});
  for (const int group : {3, 5, 7, 16})
    rows.push_back({fmt::format("batch16 kv8192 group{}", group), {8 * group, 8, 128}, same(16, 1), same(16, 8192)});
  std::vector<int> zipf, mixed = same(32, 1024);
  double harmonic = 0;
  for (int i = 1; i <= 16; ++i) harmonic += 1. / i;
  for (int i = 1; i <= 16; ++i) zipf.push_back(std::max(static_cast<int>(16 * 1024 / harmonic / i), 1));
  std::shuffle(zipf.begin(), zipf.end(), std::mt19937(3));
  mixed[0] = 128 << 10;
  rows.push_back({"batch16 zipf mean1024", llama, same(16, 1), zipf});
  rows.push_back({"one 128k, 31 kv1024", llama, same(32, 1), mixed});
  rows.push_back({"batch16 kv8192 fixed_split", llama, same(16, 1), same(16, 8192), 16, PlanMode::fixed_split});
  rows.push_back({"batch16 kv8192 hd64", {32, 8, 64}, same(16, 1), same(16, 8192)});
  for (const Row& row : rows) {
    const std::string name = fmt::format("decode {}q/{}kv hd{} page{} bf16 {}", row.shape.qo_heads, row.shape.kv_heads,
                                         row.shape.head_dim, row.page_size, row.name);
    if (name.find(options.only) == name.npos) continue;
    const AttentionKernel kernel = build(make_spec(DType::bf16, row.shape.head_dim, Mask::none), bench.device());
    double bytes = 0;
    const double seconds = seconds_of(bench, row, kernel, bytes);
    report.add({"attention", name, "bandwidth", bytes / seconds / 1e9, "GB/s",
                bench.read_rate(static_cast<size_t>(bytes)) / 1e9});
    if (row.kv_lens.size() == 1) report.add({"attention", name, "time", seconds * 1e6, "us"});
  }
}

void measure_prefill(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  for (const int head_dim : {128, 64})
    for (const int len : {512, 1024, 2048, 4096, 8192, 16384}) {
      if (options.quick && len != 1024 && len != 4096) continue;
      const int requests = std::max(16384 / len, 1);
      const Row row{fmt::format("batch{} n{}", requests, len),
                    {16, 16, head_dim},
                    std::vector<int>(static_cast<size_t>(requests), len),
                    std::vector<int>(static_cast<size_t>(requests), len)};
      const std::string name = fmt::format("prefill causal 16q/16kv hd{} page16 bf16 {}", head_dim, row.name);
      if (name.find(options.only) == name.npos) continue;
      const AttentionKernel kernel = build(make_spec(DType::bf16, head_dim, Mask::causal), bench.device());
      double bytes = 0;
      const double seconds = seconds_of(bench, row, kernel, bytes);
      report.add({"attention", name, "rate", 2. * len * len * head_dim * 16 * requests / seconds / 1e12, "TFLOP/s",
                  bench.product_rate() / 1e12});
    }
}

}  // namespace

void measure_attention_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}, {} multiprocessors; random data, shuffled pages, NHD; each row a node of a graph",
                          to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  report.note(
      "decode: bytes of K and V read once, beside a plain read of as many; prefill: 2 n^2 d operations a head, beside "
      "products of warps (mma.sync) on registers");
  measure_decode(bench, options, report);
  measure_prefill(bench, options, report);
}

}  // namespace weft::bench
