// `weft bench attention --device cuda:0`: decode as a share of a plain read of as many bytes, prefill as a share of what warps
// multiply on registers. Batches lie side by side in memory larger than the card's cache; runs are nodes of a graph.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

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
  std::vector<ScalarArg> scalars = {};  // that the plan takes, or the variant
  bool has_slopes = false;              // of ALiBi
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
  if (kernel.spec().sliding_window)
    batch.input.scalars = row.scalars;
  else
    batch.tensors.scalars = row.scalars;
  if (row.has_slopes) {
    std::vector<float> slopes(static_cast<size_t>(row.shape.qo_heads));
    for (size_t head = 0; head < slopes.size(); ++head) slopes[head] = 1.f / static_cast<float>(2 + head);
    batch.slopes = Workspace(bench.device(), slopes.size() * sizeof(float));
    cuda::copy_to_card(bench.card(), batch.slopes.data(), slopes.data(), batch.slopes.bytes(),
                       static_cast<cuda::api::Stream>(bench.stream().handle()));
    batch.tensors.tensors = {
        {"slopes", TensorView(batch.slopes.data(), DType::fp32, {row.shape.qo_heads}, bench.device())}};
  }
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

// 16 requests of 1,024 tokens on average.
std::vector<int> zipf_lengths() {
  std::vector<int> lengths;
  double harmonic = 0;
  for (int i = 1; i <= 16; ++i) harmonic += 1. / i;
  for (int i = 1; i <= 16; ++i) lengths.push_back(std::max(static_cast<int>(16 * 1024 / harmonic / i), 1));
  std::shuffle(lengths.begin(), lengths.end(), std::mt19937(3));
  return lengths;
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
  std::vector<int> mixed = same(32, 1024);
  mixed[0] = 128 << 10;
  rows.push_back({"batch16 zipf mean1024", llama, same(16, 1), zipf_lengths()});
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

// A causal prefill of 4,096 tokens with more or less to do, and lengths that differ; operations of the keys that rows see.
void measure_prefill_variants(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  constexpr int kWindow = 1024, kLen = 4096;
  struct Case {
    const char* name;
    Variant variant = {};
    std::vector<ScalarArg> scalars = {};
    bool has_slopes = false, has_window = false;
  };
  Variant fast_cap = variants::logits_soft_cap();
  fast_cap.name = "FastSoftCap";
  fast_cap.text =
      "struct FastSoftCap { real logits_transform(P p, Score, real s) { return p.cap * weft::fast_tanh(s / p.cap); } "
      "};";
  const Case cases[] = {{"soft-cap", variants::logits_soft_cap(), {{"cap", 30.}}},
                        {"soft-cap fast_tanh", fast_cap, {{"cap", 30.}}},
                        {"alibi", variants::alibi(), {}, true},
                        {"window", {}, {{"window_left", kWindow}}, false, true},
                        {"zipf mean1024"}};
  for (const Case& c : cases) {
    const bool is_zipf = std::string_view(c.name).starts_with("zipf");
    const std::vector<int> lens = is_zipf ? zipf_lengths() : std::vector<int>(4, kLen);
    const Row row{is_zipf ? "batch16 zipf mean1024" : fmt::format("batch4 n{} {}", kLen, c.name),
                  {16, 16, 128},
                  lens,
                  lens,
                  16,
                  PlanMode::balanced,
                  c.scalars,
                  c.has_slopes};
    const std::string name = fmt::format("prefill causal 16q/16kv hd128 page16 bf16 {}", row.name);
    if (name.find(options.only) == name.npos) continue;
    AttentionSpec spec = make_spec(DType::bf16, 128, Mask::causal);
    spec.variant = c.variant;
    spec.sliding_window = c.has_window;
    double seen = 0, bytes = 0;
    for (const double len : lens)
      seen += c.has_window ? len * (kWindow + 1) - (kWindow + 1.) * kWindow / 2 : len * len / 2;
    const double seconds = seconds_of(bench, row, build(spec, bench.device()), bytes);
    report.add(
        {"attention", name, "rate", 4. * seen * 128 * 16 / seconds / 1e12, "TFLOP/s", bench.product_rate() / 1e12});
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
  if (!options.quick) measure_prefill_variants(bench, options, report);
}

}  // namespace weft::bench
