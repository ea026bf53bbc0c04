// `weft bench attention --device cuda:0`: decode as a share of a plain read of as many bytes, prefill as a share of what warps
// multiply on registers. Batches lie side by side in memory larger than the card's cache; runs are nodes of a graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "attention/kernel.h"
#include "bench/batch.h"
#include "bench/cuda/card.h"
#include "bench/measure.h"
#include "device/cuda/memory.h"
#include "weft/levels.h"

namespace weft::bench {
namespace {

constexpr int kMostRuns = 16, kWindow = 1024;

// One batch of requests over some part of the pool.
struct CardBatch {
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_indices, last_page_len;
  PlanInput input;
  PlanBounds bounds;
  Workspace q, o, plan, slopes;
  AttentionTensors tensors;
  int64_t cache_bytes = 0;  // that are read
};

struct Row {
  std::string name;
  Shape shape;
  std::vector<int> qo_lens, kv_lens;
  int page_size = 16;
  PlanMode mode = PlanMode::balanced;
  int prefix = 0;  // tokens in whole pages that stand before those of every request
  Variant variant = {};
  bool has_window = false;
};

int pages_of(const Row& row, int tokens) { return (tokens + row.page_size - 1) / row.page_size; }

int64_t pages_of(const Row& row) {
  int64_t pages = pages_of(row, row.prefix);
  for (const int len : row.kv_lens) pages += pages_of(row, len);
  return pages;
}

int64_t token_bytes(const Row& row) { return int64_t{row.shape.kv_heads} * row.shape.head_dim * 4; }

AttentionKernel kernel_of(CardBench& bench, const Row& row, Mask mask) {
  AttentionSpec spec = make_spec(DType::bf16, row.shape.head_dim, mask, row.variant);
  spec.sliding_window = row.has_window;
  return build(spec, bench.device());
}

// What the built-in variants of these rows declare.
void give_params(CardBench& bench, const Row& row, CardBatch& batch) {
  if (row.has_window) batch.input.scalars = {{"window_left", kWindow}};
  for (const ScalarDecl& scalar : row.variant.scalars) batch.tensors.scalars.push_back({scalar.name, 30.});
  if (row.variant.tensors.empty()) return;
  std::vector<float> slopes;
  for (int head = 1; head <= row.shape.qo_heads; ++head)
    slopes.push_back(std::exp2(-8.f * static_cast<float>(head) / static_cast<float>(row.shape.qo_heads)));
  batch.slopes = Workspace(bench.device(), slopes.size() * sizeof(float));
  cuda::copy_to_card(bench.card(), batch.slopes.data(), slopes.data(), batch.slopes.bytes(),
                     static_cast<cuda::api::Stream>(bench.stream().handle()));
  batch.tensors.tensors = {{row.variant.tensors[0].name,
                            TensorView(batch.slopes.data(), DType::fp32, {row.shape.qo_heads}, bench.device())}};
}

void fill(CardBench& bench, const Row& row, const AttentionKernel& kernel, char* cache, unsigned seed,
          CardBatch& batch) {
  const int64_t pages = pages_of(row);
  std::vector<int32_t> ids(static_cast<size_t>(pages));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  const auto behind_prefix = ids.begin() + pages_of(row, row.prefix);
  batch.cache_bytes = row.prefix * token_bytes(row);
  for (auto [r, own] = std::pair{size_t{0}, behind_prefix}; r < row.kv_lens.size(); ++r) {
    const int of_request = pages_of(row, row.kv_lens[r]);
    batch.page_indices.insert(batch.page_indices.end(), ids.begin(), behind_prefix);
    batch.page_indices.insert(batch.page_indices.end(), own, own + of_request);
    own += of_request;
    batch.qo_indptr.push_back(batch.qo_indptr.back() + row.qo_lens[r]);
    batch.page_indptr.push_back(static_cast<int32_t>(batch.page_indices.size()));
    batch.last_page_len.push_back(row.kv_lens[r] - (of_request - 1) * row.page_size);
    batch.cache_bytes += row.kv_lens[r] * token_bytes(row);
  }
  const int64_t rows = batch.qo_indptr.back();
  batch.input = {.num_qo_heads = row.shape.qo_heads, .num_kv_heads = row.shape.kv_heads, .qo_indptr = batch.qo_indptr};
  batch.input.pages = {row.page_size, pages, batch.page_indptr, batch.page_indices, batch.last_page_len};
  batch.input.mode = row.mode;
  if (row.mode == PlanMode::fixed_split) batch.input.fixed_split_size = 512;
  batch.bounds = {.max_requests = static_cast<int>(row.kv_lens.size()),
                  .max_rows = rows,
                  .max_qo_len = row.prefix > 0 ? 0 : *std::max_element(row.qo_lens.begin(), row.qo_lens.end()),
                  .max_pages = static_cast<int64_t>(batch.page_indices.size()),
                  .max_levels = row.prefix > 0 ? 2 : 1,
                  .max_kv_len = row.prefix + *std::max_element(row.kv_lens.begin(), row.kv_lens.end()),
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
  give_params(bench, row, batch);
  const SharedLevels levels = row.prefix > 0 ? levels_from_page_tables(kernel, batch.input) : SharedLevels();
  const Plan plan = kernel.plan(levels.apply(batch.input));
  batch.plan = Workspace(bench.device(), plan.workspace_bytes());
  plan.upload(batch.plan, bench.stream());
  bench.stream().synchronize();
}

double seconds_of(CardBench& bench, const Row& row, const AttentionKernel& kernel, double& bytes) {
  const int64_t size = pages_of(row) * row.page_size * token_bytes(row);
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

std::vector<int> same(int n, int len) { return std::vector<int>(static_cast<size_t>(n), len); }

std::vector<int> zipf(int n, int mean) {
  std::vector<int> lens;
  double harmonic = 0;
  for (int i = 1; i <= n; ++i) harmonic += 1. / i;
  for (int i = 1; i <= n; ++i) lens.push_back(std::max(static_cast<int>(n * mean / harmonic / i), 1));
  std::shuffle(lens.begin(), lens.end(), std::mt19937(3));
  return lens;
}

void measure_decode(CardBench& bench, const BenchOptions& options, BenchReport& report, const Row& row) {
  const std::string name = fmt::format("decode {}q/{}kv hd{} page{} bf16 {}", row.shape.qo_heads, row.shape.kv_heads,
                                       row.shape.head_dim, row.page_size, row.name);
  if (name.find(options.only) == name.npos) return;
  double bytes = 0;
  const double seconds = seconds_of(bench, row, kernel_of(bench, row, Mask::none), bytes);
  report.add({"attention", name, "bandwidth", bytes / seconds / 1e9, "GB/s",
              bench.read_rate(static_cast<size_t>(bytes)) / 1e9});
  if (row.kv_lens.size() == 1 || row.prefix > 0) report.add({"attention", name, "time", seconds * 1e6, "us"});
}

std::vector<Row> decode_rows() {
  const Shape llama{32, 8, 128};
  std::vector<Row> rows;
  for (const auto& [n, len] : {std::pair{1, 1024}, {1, 8192}, {16, 1024}, {16, 8192}, {64, 1024}, {64, 4096}})
    rows.push_back({fmt::format("batch{} kv{}", n, len), llama, same(n, 1), same(n, len)});
  rows.push_back({"batch16 kv8192 page1", llama, same(16, 1), same(16, 8192), 1});
  rows.push_back({"batch16 kv8192 page64", llama, same(16, 1), same(16, 8192), 64});
  for (const int group : {3, 5, 7, 16})
    rows.push_back({fmt::format("batch16 kv8192 group{}", group), {8 * group, 8, 128}, same(16, 1), same(16, 8192)});
  std::vector<int> mixed = same(32, 1024);
  mixed[0] = 128 << 10;
  rows.push_back({"batch16 zipf mean1024", llama, same(16, 1), zipf(16, 1024)});
  rows.push_back({"one 128k, 31 kv1024", llama, same(32, 1), mixed});
  rows.push_back({"batch16 kv8192 fixed_split", llama, same(16, 1), same(16, 8192), 16, PlanMode::fixed_split});
  rows.push_back({"batch16 kv8192 hd64", {32, 8, 64}, same(16, 1), same(16, 8192)});
  return rows;
}

std::vector<Row> prefix_rows() {
  std::vector<Row> rows;
  for (const auto& [n, prefix] : {std::pair{16, 1024}, {16, 32768}, {64, 32768}}) {
    rows.push_back({fmt::format("batch{} prefix{} kv128", n, prefix), {32, 32, 128}, same(n, 1), same(n, 128)});
    rows.back().prefix = prefix;
  }
  return rows;
}

// Of the pairs of a query and a key that are seen.
double operations_of(const Row& row) {
  double seen = 0;
  for (const double n : row.qo_lens) {
    const double window = row.has_window ? std::min<double>(n, kWindow) : n;
    seen += window * (n - window / 2);
  }
  return 4 * seen * row.shape.head_dim * row.shape.qo_heads;
}

void measure_prefill(CardBench& bench, const BenchOptions& options, BenchReport& report, const Row& row) {
  const std::string name = fmt::format("prefill causal {}q/{}kv hd{} page{} bf16 {}", row.shape.qo_heads,
                                       row.shape.kv_heads, row.shape.head_dim, row.page_size, row.name);
  if (name.find(options.only) == name.npos) return;
  double bytes = 0;
  const double seconds = seconds_of(bench, row, kernel_of(bench, row, Mask::causal), bytes);
  report.add({"attention", name, "rate", operations_of(row) / seconds / 1e12, "TFLOP/s", bench.product_rate() / 1e12});
}

std::vector<Row> prefill_rows(bool quick) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& name, int head_dim, const std::vector<int>& lens) -> Row& {
    return rows.emplace_back(Row{name, {16, 16, head_dim}, lens, lens});
  };
  for (const int head_dim : {128, 64})
    for (const int len : {512, 1024, 2048, 4096, 8192, 16384}) {
      const int requests = std::max(16384 / len, 1);
      if (!quick || len == 1024 || len == 4096)
        add(fmt::format("batch{} n{}", requests, len), head_dim, same(requests, len));
    }
  add("batch16 zipf mean1024", 128, zipf(16, 1024));
  add("batch4 n4096 soft-cap", 128, same(4, 4096)).variant = variants::logits_soft_cap();
  add("batch4 n4096 alibi", 128, same(4, 4096)).variant = variants::alibi();
  add("batch4 n4096 window", 128, same(4, 4096)).has_window = true;
  return rows;
}

}  // namespace

void measure_attention_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}, {} multiprocessors; random data, shuffled pages, NHD; each row a node of a graph",
                          to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  report.note(
      "decode: bytes of K and V read once, beside a plain read of as many; prefill: operations of the pairs that are "
      "seen, "
      "2 n^2 d a head, beside products of warps (mma.sync) on registers");
  for (const Row& row : decode_rows()) measure_decode(bench, options, report, row);
  for (const Row& row : prefill_rows(options.quick)) measure_prefill(bench, options, report, row);
  for (const Row& row : prefix_rows()) measure_decode(bench, options, report, row);
}

}  // namespace weft::bench
