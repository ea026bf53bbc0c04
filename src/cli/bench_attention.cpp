// `weft bench attention`: decode as a share of the machine's read bandwidth, prefill as a share of the rate of the
// instruction it uses, variants and mixed lengths as a share of plain attention and equal lengths; with --numerics the
// worst error against fp64 as a share of its bound.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "attention/leaf.h"
#include "attention/reference.h"
#include "cli/bench.h"
#include "cli/bench_batch.h"
#include "device/cpu/cpuid.h"
#include "weft/attention.h"
#include "weft/block_sparse.h"
#include "weft/quest.h"

namespace weft::cli {
namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

// Memory for caches, larger than the machine's: batches lie in it side by side, so that no line of one is still in a
// cache when its turn comes again. Its numbers are fit for bf16 and fp32.
class Pool {
 public:
  explicit Pool(int64_t bytes) : memory_(Device::cpu(), static_cast<size_t>(bytes)) {
    const int64_t part = std::min<int64_t>(bytes, 64 << 20);
    fill_random(data(), DType::bf16, part / 2, 1);
    for (int64_t at = part; at < bytes; at += part)
      std::memcpy(data() + at, data(), static_cast<size_t>(std::min(part, bytes - at)));
  }
  char* data() { return static_cast<char*>(memory_.data()); }
  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }

 private:
  Workspace memory_;
};

// A kernel and the batches it runs over in turn.
struct Job {
  AttentionKernel kernel;
  std::vector<Batch> batches;
  std::vector<Workspace> workspaces;
  size_t next = 0;

  void plan() {
    for (Batch& batch : batches) {
      const Plan made = kernel.plan(batch.input);
      workspaces.emplace_back(Device::cpu(), made.workspace_bytes());
      made.upload(workspaces.back());
    }
  }
  Timing time(WorkerTeam& team, int min_runs, double min_seconds) {
    return time_runs(
        [&] {
          kernel.run(workspaces[next], batches[next].tensors, Stream::cpu(team));
          next = (next + 1) % batches.size();
        },
        min_runs, min_seconds);
  }
};

// What the rows of one call of the benchmark share.
struct Bench {
  const BenchOptions& options;
  BenchReport& report;
  WorkerTeam& team;

  bool wants(const std::string& name) const { return name.find(options.only) != std::string::npos; }
  Timing time(Job& job) { return job.time(team, options.quick ? 3 : 9, options.quick ? 0.05 : 0.3); }
  // Calls that take long: few of them.
  Timing time_long(Job& job) { return job.time(team, options.quick ? 1 : 3, options.quick ? 0.05 : 0.3); }

  std::optional<Pool> memory;
  Pool& pool() {
    const int64_t l3 = static_cast<int64_t>(std::max<size_t>(cpu_info().l3_bytes, 8 << 20));
    if (!memory) memory.emplace(options.quick ? 256 << 20 : 8 * l3);
    return *memory;
  }
};

int64_t sum(const std::vector<int>& lens) { return std::accumulate(lens.begin(), lens.end(), int64_t{0}); }

// Decode over batches that fill the pool; bytes a run in `bytes`.
Job decode_job(Bench& bench, const AttentionSpec& spec, const Shape& shape, const std::vector<int>& kv_lens,
               int page_size, int64_t& bytes) {
  const int64_t token_bytes = int64_t{2} * shape.kv_heads * shape.head_dim * bits_of(spec.kv_dtype) / 8;
  bytes = sum(kv_lens) * token_bytes;
  Job job{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
  int64_t pages = 0;
  for (const int len : kv_lens) pages += (len + page_size - 1) / page_size;
  const int64_t held = pages * page_size * token_bytes;
  Pool& pool = bench.pool();
  for (int64_t at = 0; at + held <= pool.bytes(); at += held)
    job.batches.emplace_back(spec, shape, 1, kv_lens, page_size, bench.team.num_workers(), pool.data() + at);
  job.plan();
  return job;
}

constexpr Shape kDecodeShapes[] = {{32, 8, 128}, {9, 3, 64}};

void bench_decode(Bench& bench) {
  const int kv_len = bench.options.quick ? 2048 : 8192;
  for (const Shape& shape : kDecodeShapes)
    for (const DType dtype : {DType::bf16, DType::fp32})
      for (const int requests : {1, 16}) {
        double rate[2] = {};  // of page sizes 1 and 64
        const auto name = [&](const std::string& pages) {
          return fmt::format("decode {}q/{}kv hd{} kv{} batch{} {} {}", shape.qo_heads, shape.kv_heads, shape.head_dim,
                             kv_len, requests, pages, to_string(dtype));
        };
        for (const int page_size : {1, 16, 64}) {
          if ((bench.options.quick && page_size != 16) || !bench.wants(name(fmt::format("page{}", page_size))))
            continue;
          int64_t bytes = 0;
          Job job = decode_job(bench, make_spec(dtype, shape.head_dim, Mask::none), shape,
                               std::vector<int>(static_cast<size_t>(requests), kv_len), page_size, bytes);
          // The ceiling lies between two halves of the row's runs.
          const Timing first = bench.time(job);
          const double ceiling =
              measure_read_bandwidth(bench.team, bench.pool().data(), static_cast<size_t>(bench.pool().bytes()));
          const Timing second = bench.time(job);
          const double bandwidth = static_cast<double>(bytes) / ((first.median_s + second.median_s) / 2);
          bench.report.add({"attention", name(fmt::format("page{}", page_size)), "bandwidth", bandwidth / 1e9, "GB/s",
                            ceiling / 1e9});
          if (page_size != 16) rate[page_size == 64] = bandwidth;
        }
        if (rate[0] > 0 && rate[1] > 0)
          bench.report.add({"attention", name("page1 by page64"), "bandwidth", rate[0] / 1e9, "GB/s", rate[1] / 1e9});
      }
}

// Narrow caches beside bf16: the time of the same decode.
void bench_narrow_caches(Bench& bench) {
  const int kv_len = bench.options.quick ? 2048 : 8192;
  for (const Shape& shape : kDecodeShapes)
    for (const DType dtype : {DType::int8, DType::int4, DType::fp8_e4m3}) {
      const std::string name = fmt::format("decode {}q/{}kv hd{} kv{} batch16 page16 {} by bf16", shape.qo_heads,
                                           shape.kv_heads, shape.head_dim, kv_len, to_string(dtype));
      if (!bench.wants(name)) continue;
      const std::vector<int> lens(16, kv_len);
      int64_t bytes = 0;
      AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
      Job wide = decode_job(bench, spec, shape, lens, 16, bytes);
      spec.kv_dtype = dtype;
      spec.kv_scales = KvScales::token;
      Job narrow = decode_job(bench, spec, shape, lens, 16, bytes);
      const Timing before = bench.time(wide), timing = bench.time(narrow), after = bench.time(wide);
      bench.report.add(
          {"attention", name, "time", timing.median_s * 1e3, "ms", (before.median_s + after.median_s) / 2 * 1e3});
    }
}

void bench_lengths(Bench& bench) {
  constexpr int kRequests = 16;
  std::mt19937 random(3);
  std::vector<int> constant(kRequests, 1024), uniform, zipf;
  for (int i = 0; i < kRequests; ++i) {
    uniform.push_back(512 + static_cast<int>(random() % 513));
    zipf.push_back(8192 / (i + 1));
  }
  std::shuffle(zipf.begin(), zipf.end(), random);
  for (const Shape& shape : kDecodeShapes) {
    const auto measure = [&](const std::vector<int>& lens) {
      int64_t bytes = 0;
      Job job = decode_job(bench, make_spec(DType::bf16, shape.head_dim, Mask::none), shape, lens, 16, bytes);
      return static_cast<double>(bytes) / bench.time(job).median_s;
    };
    for (const auto& [lengths, lens] : {std::pair{"512..1024", &uniform}, {"zipf 512..8192", &zipf}}) {
      const std::string name = fmt::format("decode {}q/{}kv hd{} batch{} lengths {} by 1024", shape.qo_heads,
                                           shape.kv_heads, shape.head_dim, kRequests, lengths);
      if (!bench.wants(name)) continue;
      const double before = measure(constant), value = measure(*lens), after = measure(constant);
      bench.report.add({"attention", name, "bandwidth", value / 1e9, "GB/s", (before + after) / 2e9});
    }
  }
}

// Causal: row i of the last qo_len sees the keys up to its own, at most window + 1 of them.
double prefill_flops(const Shape& shape, double len, double window) {
  const double seen = window >= len ? len * (len + 1) / 2 : window * (window + 1) / 2 + (len - window) * (window + 1);
  return 4. * shape.qo_heads * shape.head_dim * seen;  // a multiply-add in each product counts as two
}

std::string products_of(DType compute) { return compute == DType::bf16 ? "bf16 dot" : "fp32 multiply-add"; }

Job prefill_job(Bench& bench, const AttentionSpec& spec, const Shape& shape, int len) {
  Job job{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
  job.batches.emplace_back(spec, shape, len, std::vector<int>{len}, 16, bench.team.num_workers());
  return job;
}

void bench_prefill(Bench& bench) {
  for (const int head_dim : {64, 128})
    for (const int len : {512, 4096})
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        const Shape shape{32, 8, head_dim};
        const AttentionSpec spec = make_spec(dtype, head_dim, Mask::causal);
        const DType compute = compute_type(spec, current_isa());
        const std::string name = fmt::format("prefill causal {}q/{}kv hd{} {} tokens {} ({})", shape.qo_heads,
                                             shape.kv_heads, head_dim, len, to_string(dtype), products_of(compute));
        if ((bench.options.quick && len > 512) || !bench.wants(name)) continue;
        Job job = prefill_job(bench, spec, shape, len);
        job.plan();
        const double ceiling = compute == DType::bf16 ? measure_bf16_flops(bench.team.num_workers())
                                                      : measure_fp32_flops(bench.team.num_workers());
        const Timing timing = len > 512 ? bench.time_long(job) : bench.time(job);
        bench.report.add({"attention", name, "rate", prefill_flops(shape, len, len) / timing.median_s / 1e9, "GFLOP/s",
                          ceiling / 1e9});
      }
}

// MLA: each latent row serves every query head, which makes decode a matter of arithmetic.
void bench_latent(Bench& bench) {
  AttentionSpec spec = make_spec(DType::bf16, 576, Mask::none);
  spec.head_dim_vo = 512;
  spec.kv_form = KvForm::latent;
  const int kv_len = bench.options.quick ? 1024 : 4096;
  const DType compute = compute_type(spec, current_isa());
  for (const int heads : {128, 16})
    for (const int requests : {1, 4})
      for (const int page_size : {16, 64}) {
        const std::string name = fmt::format("decode latent {}q 512+64 kv{} batch{} page{} bf16 ({})", heads, kv_len,
                                             requests, page_size, products_of(compute));
        if ((bench.options.quick && (page_size != 64 || requests != 1)) || !bench.wants(name)) continue;
        Job job{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
        job.batches.emplace_back(spec, Shape{heads, 1, 576}, 1, std::vector<int>(static_cast<size_t>(requests), kv_len),
                                 page_size, bench.team.num_workers());
        job.plan();
        const auto measure = [&] {
          return compute == DType::bf16 ? measure_bf16_flops(bench.team.num_workers())
                                        : measure_fp32_flops(bench.team.num_workers());
        };
        const Timing first = bench.time(job);
        const double ceiling = measure();
        const Timing second = bench.time(job);
        const double flops = 2. * heads * (spec.head_dim_qk + spec.head_dim_vo) * kv_len * requests;
        bench.report.add({"attention", name, "rate", 2 * flops / (first.median_s + second.median_s) / 1e9, "GFLOP/s",
                          ceiling / 1e9});
      }
}

// Quest beside attention over everything: a step of a long context by the same step of a short one, and the choice of
// pages by attention over the pages that it chose.
void bench_quest(Bench& bench) {
  const Shape shape{32, 8, 128};
  const int budget = bench.options.quick ? 16 : 64, page_size = 16, longest = bench.options.quick ? 4096 : 65536;
  const std::string name = fmt::format("decode quest {}q/{}kv hd{} {} pages of {}, kv{}", shape.qo_heads,
                                       shape.kv_heads, shape.head_dim, budget, page_size, longest);
  if (!bench.wants(name)) return;
  struct Step {
    double choice_s, attention_s, whole_s;
  };
  const auto measure = [&](int kv_len) -> Step {
    AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
    Job whole{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
    whole.batches.emplace_back(spec, shape, 1, std::vector<int>{kv_len}, page_size, bench.team.num_workers());
    whole.plan();
    Batch& batch = whole.batches[0];
    const PageTableView& pages = batch.input.pages;
    const TensorView sized(nullptr, DType::fp32, {pages.num_pages, shape.kv_heads, shape.head_dim});
    std::vector<float> low(static_cast<size_t>(sized.size())), high(low.size());
    const PageSummaries summaries{TensorView(low.data(), DType::fp32, sized.shape()),
                                  TensorView(high.data(), DType::fp32, sized.shape())};
    const std::vector<int32_t> all{0, kv_len};
    update_page_summaries(batch.tensors.kv.k, all, pages, Layout::nhd, summaries, Stream::cpu(bench.team));
    std::vector<float> q(static_cast<size_t>(shape.qo_heads * shape.head_dim));
    fill_random(q.data(), DType::fp32, static_cast<int64_t>(q.size()), 7);
    std::vector<int32_t> selected;
    const Timing choice = time_runs(
        [&] {
          selected = choose_pages(TensorView(q.data(), DType::fp32, {1, shape.qo_heads, shape.head_dim}), summaries,
                                  batch.qo_indptr, pages, shape.kv_heads, budget, Stream::cpu(bench.team));
        },
        9, 0.2);
    const BlockLists lists = select_pages(pages, batch.qo_indptr, shape.kv_heads, selected, budget);
    const BlockSparse blocks = lists.view();
    spec.kv_form = KvForm::block_sparse;
    PlanInput input = batch.input;
    input.pages = {};
    input.blocks = &blocks;
    const AttentionKernel kernel = build(spec, Device::cpu());
    const Plan plan = kernel.plan(input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    plan.upload(workspace);
    const Timing attention = time_runs([&] { kernel.run(workspace, batch.tensors, Stream::cpu(bench.team)); }, 9, 0.2);
    return {choice.median_s, attention.median_s, bench.time(whole).median_s};
  };
  const Step near = measure(longest / 8), far = measure(longest), again = measure(longest / 8);
  const double attention = (near.attention_s + again.attention_s) / 2;
  bench.report.add(
      {"attention", fmt::format("{} by kv{}", name, longest / 8), "rate", 1 / far.attention_s, "1/s", 1 / attention});
  bench.report.add({"attention", fmt::format("{}: choice and attention by all pages", name), "rate",
                    1 / (far.attention_s + far.choice_s), "1/s", 1 / far.whole_s});
}

// Variants beside plain attention of the same call, by the work that their masks leave.
void bench_variants(Bench& bench) {
  const int len = bench.options.quick ? 512 : 4096, window = len / 4;
  const std::vector<float> slopes(32, 0.01f);
  const TensorView slopes_view(slopes.data(), DType::fp32, {32});
  const Variant own{.name = "Recency",
                    .text =
                        "struct Recency {\n"
                        "  real logits_transform(P p, Score c, real s) {\n"
                        "    return s * p.gain(c.qo_head) - p.decay * weft::abs(real(c.q_pos - c.kv_pos));\n"
                        "  }\n};\n",
                    .scalars = {{.name = "decay"}},
                    .tensors = {{.name = "gain"}}};
  struct Row {
    const char* name;
    Variant variant;
    bool windowed;
    std::vector<ScalarArg> scalars;
    std::vector<TensorArg> tensors;
  };
  const std::vector<Row> rows = {{"soft cap", variants::logits_soft_cap(), false, {{"cap", 30.}}, {}},
                                 {"ALiBi", variants::alibi(), false, {}, {{"slopes", slopes_view}}},
                                 {"own functor", own, false, {{"decay", 0.01}}, {{"gain", slopes_view}}},
                                 {"sliding window", {}, true, {}, {}}};
  for (const int head_dim : {64, 128})
    for (const Row& row : rows) {
      const Shape shape{32, 8, head_dim};
      const std::string name = fmt::format("prefill {} by plain, {}q/{}kv hd{} {} tokens bf16", row.name,
                                           shape.qo_heads, shape.kv_heads, head_dim, len);
      if (!bench.wants(name)) continue;
      AttentionSpec spec = make_spec(DType::bf16, head_dim, Mask::causal);
      Job plain = prefill_job(bench, spec, shape, len);
      plain.plan();
      spec.variant = row.variant;
      spec.sliding_window = row.windowed;
      Job job = prefill_job(bench, spec, shape, len);
      if (row.windowed) job.batches[0].input.scalars = {{"window_left", static_cast<double>(window)}};
      job.batches[0].tensors.scalars = row.scalars;
      job.batches[0].tensors.tensors = row.tensors;
      job.plan();
      const Timing before = bench.time_long(plain), timing = bench.time_long(job), after = bench.time_long(plain);
      const double rate = prefill_flops(shape, len, row.windowed ? window : len) / timing.median_s;
      const double ceiling = 2 * prefill_flops(shape, len, len) / (before.median_s + after.median_s);
      bench.report.add({"attention", name, "rate", rate / 1e9, "GFLOP/s", ceiling / 1e9});
    }
}

double value_of(const TensorView& t, int64_t index) {
  if (t.dtype() == DType::fp32) return t.as<const float>()[index];
  const uint16_t bits = t.as<const uint16_t>()[index];
  if (t.dtype() == DType::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, sizeof x);
    return x;
  }
  const int exponent = bits >> 10 & 31;
  const double x = exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return bits & 0x8000 ? -x : x;
}

// The worst |o - o*| / bound over a decode and a prefill shape.
double worst_error(const AttentionKernel& kernel, const std::vector<ScalarArg>& scalars, bool quick, WorkerTeam& team) {
  struct Lengths {
    int qo_len, kv_len;
  };
  constexpr Lengths kLengths[] = {{1, 2000}, {70, 300}};
  constexpr Shape kShape = {4, 2, 64};
  const AttentionSpec& spec = kernel.spec();
  double worst = 0;
  for (const Lengths& lengths : kLengths) {
    if (quick && lengths.qo_len > 1) continue;
    Batch batch(spec, kShape, lengths.qo_len, {lengths.kv_len}, 16, team.num_workers());
    if (spec.sliding_window) batch.input.scalars = {{"window_left", 100}};
    batch.tensors.sm_scale = 1.f;  // sharp enough that single keys win
    batch.tensors.scalars = scalars;
    const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    for (const TensorDecl& tensor : spec.variant.tensors)
      batch.tensors.tensors.push_back({tensor.name, TensorView(slopes.data(), DType::fp32, {kShape.qo_heads})});
    std::vector<uint8_t> mask(static_cast<size_t>(lengths.qo_len * lengths.kv_len)), packed;
    std::mt19937 random(5);
    for (uint8_t& seen : mask) seen = random() % 3 != 0;
    std::vector<int64_t> indptr = {0, static_cast<int64_t>(mask.size())}, packed_indptr;
    packed = pack_mask(mask, indptr, packed_indptr);
    if (spec.mask == Mask::custom || spec.mask == Mask::custom_packed) {
      const bool bits = spec.mask == Mask::custom_packed;
      const std::vector<uint8_t>& given = bits ? packed : mask;
      const std::vector<int64_t>& given_indptr = bits ? packed_indptr : indptr;
      batch.tensors.tensors.push_back(
          {"mask", TensorView(given.data(), DType::uint8, {static_cast<int64_t>(given.size())})});
      batch.tensors.tensors.push_back({"mask_indptr", TensorView(given_indptr.data(), DType::int64, {2})});
    }
    const ReferenceResult expected = attention_reference(spec, batch.input, batch.tensors);
    const Plan plan = kernel.plan(batch.input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan, batch.tensors, workspace, Stream::cpu(team));
    const ErrorBound error_bound(spec, kernel.impl().compute);
    for (size_t i = 0; i < expected.o.size(); ++i) {
      const double bound = error_bound(lengths.kv_len, expected.o[i], expected.scale[i]);
      worst = std::max(worst, std::abs(value_of(batch.tensors.o, static_cast<int64_t>(i)) - expected.o[i]) / bound);
    }
  }
  return worst;
}

void add_error(const AttentionSpec& spec, const std::string& variant, const std::vector<ScalarArg>& scalars,
               const BenchOptions& options, BenchReport& report, WorkerTeam& team) {
  const AttentionKernel kernel = build(spec, Device::cpu());
  report.add({"attention",
              fmt::format("numerics {}, q {} kv {} o {} ({} products)", variant, to_string(spec.q_dtype),
                          to_string(spec.kv_dtype), to_string(spec.o_dtype), to_string(kernel.impl().compute)),
              "worst error / bound", worst_error(kernel, scalars, options.quick, team), "", 1});
}

// Every combination of types, then every built-in variant and mask.
void bench_numerics(const BenchOptions& options, BenchReport& report, WorkerTeam& team) {
  for (const DType q : kTypes)
    for (const DType kv : kTypes)
      for (const DType o : kTypes) {
        AttentionSpec spec = make_spec(q, 64, Mask::causal);
        spec.kv_dtype = kv;
        spec.o_dtype = o;
        add_error(spec, "causal", {}, options, report, team);
      }
  struct Case {
    const char* name;
    Mask mask;
    bool window = false;
    Variant variant = {};
    std::vector<ScalarArg> scalars = {};
  };
  const Case cases[] = {{"no mask", Mask::none},
                        {"causal window", Mask::causal, true},
                        {"custom mask", Mask::custom},
                        {"packed mask", Mask::custom_packed},
                        {"soft cap", Mask::causal, false, variants::logits_soft_cap(), {{"cap", 5}}},
                        {"ALiBi", Mask::causal, false, variants::alibi()},
                        {"sigmoid", Mask::causal, false, variants::sigmoid(), {{"bias", -3}}}};
  for (const Case& c : cases)
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      AttentionSpec spec = make_spec(dtype, 64, c.mask);
      spec.sliding_window = c.window;
      spec.variant = c.variant;
      add_error(spec, c.name, c.scalars, options, report, team);
    }
}

}  // namespace

void bench_attention(const BenchOptions& options, BenchReport& report) {
  WorkerTeam team(options.threads);
  report.note(fmt::format("{}, {}, {} threads; random data, shuffled pages, NHD", cpu_info().model,
                          to_string(current_isa()), team.num_workers()));
  if (options.numerics) {
    report.note(
        "errors against fp64 as a share of the bound of docs/numerics.md; decode over 2000 keys, prefill of 70 after "
        "230");
    bench_numerics(options, report, team);
    return;
  }
  report.note(
      "decode: bytes of K and V read once, beside a plain read of memory of their size; prefill: beside the rate of "
      "the "
      "instruction that multiplies; `by`: beside the other case of the same run, by the work left");
  Bench bench{.options = options, .report = report, .team = team, .memory = {}};
  bench_decode(bench);
  bench_narrow_caches(bench);
  bench_lengths(bench);
  bench_prefill(bench);
  bench_latent(bench);
  bench_quest(bench);
  bench_variants(bench);
}

}  // namespace weft::cli
