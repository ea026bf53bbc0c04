// `weft bench attention`: decode as a share of the machine's read bandwidth, prefill as a share of the rate of the
// instruction it uses, variants and mixed lengths as a share of plain attention and equal lengths.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/cpu/leaf.h"
#include "attention/kernel.h"
#include "bench/calls.h"
#include "bench/measure.h"
#include "device/cpu/cpuid.h"

namespace weft::bench {
namespace {

constexpr Shape kDecodeShapes[] = {{32, 8, 128}, {9, 3, 64}};

void measure_decode(AttentionBench& bench) {
  const int kv_len = bench.options.quick ? 2048 : 8192;
  for (const Shape& shape : kDecodeShapes)
    for (const DType dtype : {DType::bf16, DType::fp32})
      for (const int requests : {1, 16}) {
        const auto name = [&](const std::string& pages) {
          return fmt::format("decode {}q/{}kv hd{} kv{} batch{} {} {}", shape.qo_heads, shape.kv_heads, shape.head_dim,
                             kv_len, requests, pages, to_string(dtype));
        };
        const AttentionSpec spec = make_spec(dtype, shape.head_dim, Mask::none);
        const std::vector<int> lens(static_cast<size_t>(requests), kv_len);
        int64_t bytes = 0;
        // In turns with what lies half of the pool away.
        const auto add = [&](const std::string& pages, int page_size, const auto& make_other) {
          if ((bench.options.quick && page_size != 16) || !bench.wants(name(pages))) return;
          Job job = decode_job(bench, spec, shape, lens, page_size, bytes);
          job.next = job.batches.size() / 2;
          const auto [job_s, other_s] = bench.time_in_turns([&] { job.run(bench.team); }, make_other());
          const auto rate = [&](double seconds) { return static_cast<double>(bytes) / seconds / 1e9; };
          bench.report.add({"attention", name(pages), "bandwidth", rate(job_s), "GB/s", rate(other_s)});
        };
        for (const int page_size : {1, 16, 64})
          add(fmt::format("page{}", page_size), page_size, [&] {
            Pool& pool = bench.pool();
            return probe_read(bench.team, pool.data(), static_cast<size_t>(pool.bytes()), static_cast<size_t>(bytes));
          });
        add("page1 by page64", 1, [&] {
          auto longer = std::make_shared<Job>(decode_job(bench, spec, shape, lens, 64, bytes));
          return [&bench, longer] { longer->run(bench.team); };
        });
      }
}

// Narrow caches beside bf16: the time of the same decode.
void measure_narrow_caches(AttentionBench& bench) {
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
      const auto [narrow_s, wide_s] =
          bench.time_in_turns([&] { narrow.run(bench.team); }, [&] { wide.run(bench.team); });
      bench.report.add({"attention", name, "time", narrow_s * 1e3, "ms", wide_s * 1e3});
    }
}

// A few tokens of one request, as drafts that are verified or a prompt's next chunk, beside a single one over as many
// keys.
void measure_few_tokens(AttentionBench& bench) {
  const int kv_len = bench.options.quick ? 2048 : 8192;
  for (const Shape& shape : kDecodeShapes)
    for (const int tokens : {4, 8, 16, 32}) {
      const std::string name = fmt::format("{} tokens by decode, {}q/{}kv hd{} kv{} page16 bf16", tokens,
                                           shape.qo_heads, shape.kv_heads, shape.head_dim, kv_len);
      if (!bench.wants(name)) continue;
      const AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::causal);
      int64_t bytes = 0;
      Job few = decode_job(bench, spec, shape, {kv_len}, 16, bytes, tokens);
      Job one = decode_job(bench, spec, shape, {kv_len}, 16, bytes);
      one.next = one.batches.size() / 2;  // far from what the other one has just read
      const auto [few_s, one_s] = bench.time_in_turns([&] { few.run(bench.team); }, [&] { one.run(bench.team); });
      bench.report.add({"attention", name, "time", few_s * 1e3, "ms", one_s * 1e3});
    }
}

constexpr int kRequests = 16;

struct Lengths {
  std::string name;
  std::vector<int> lens;
};
std::vector<Lengths> mixed_lengths(int longest) {
  std::mt19937 random(3);
  Lengths uniform{"512..1024", {}}, zipf{fmt::format("zipf {}..{}", longest / kRequests, longest), {}};
  for (int i = 0; i < kRequests; ++i) {
    uniform.lens.push_back(512 + static_cast<int>(random() % 513));
    zipf.lens.push_back(longest / (i + 1));
  }
  std::shuffle(zipf.lens.begin(), zipf.lens.end(), random);
  return {uniform, zipf};
}

void measure_decode_lengths(AttentionBench& bench) {
  const std::vector<int> constant(kRequests, 1024);
  for (const Shape& shape : kDecodeShapes) {
    const AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
    const std::string batch =
        fmt::format("decode {}q/{}kv hd{} batch{} lengths", shape.qo_heads, shape.kv_heads, shape.head_dim, kRequests);
    const auto compare = [&](const std::string& name, Job& job, int64_t bytes, Job& other, int64_t other_bytes) {
      const auto [job_s, other_s] = bench.time_in_turns([&] { job.run(bench.team); }, [&] { other.run(bench.team); });
      bench.report.add({"attention", name, "bandwidth", static_cast<double>(bytes) / job_s / 1e9, "GB/s",
                        static_cast<double>(other_bytes) / other_s / 1e9});
    };
    const std::vector<Lengths> all = mixed_lengths(8192);
    for (const Lengths& lengths : all) {
      const std::string name = fmt::format("{} {} by 1024", batch, lengths.name);
      if (!bench.wants(name)) continue;
      int64_t bytes = 0, constant_bytes = 0;
      Job mixed = decode_job(bench, spec, shape, lengths.lens, 16, bytes);
      Job equal = decode_job(bench, spec, shape, constant, 16, constant_bytes);
      compare(name, mixed, bytes, equal, constant_bytes);
    }
    // What it costs that a request's bits do not depend on its batch.
    const std::string name = fmt::format("{} {}, fixed_split 256 by balanced", batch, all[1].name);
    if (!bench.wants(name)) continue;
    int64_t bytes = 0;
    Job fixed = decode_job(bench, spec, shape, all[1].lens, 16, bytes);
    Job balanced = decode_job(bench, spec, shape, all[1].lens, 16, bytes);
    for (Batch& b : fixed.batches) {
      b.input.mode = PlanMode::fixed_split;
      b.input.fixed_split_size = 256;
    }
    fixed.plan();
    compare(name, fixed, bytes, balanced, bytes);
  }
}

// By the work that the causal mask leaves.
void measure_prefill_lengths(AttentionBench& bench) {
  if (bench.options.quick) return;
  const std::vector<int> constant(kRequests, 1024);
  for (const Shape& shape : kDecodeShapes)
    for (const Lengths& lengths : mixed_lengths(4096)) {
      const std::string name = fmt::format("prefill causal {}q/{}kv hd{} batch{} lengths {} by 1024", shape.qo_heads,
                                           shape.kv_heads, shape.head_dim, kRequests, lengths.name);
      if (!bench.wants(name)) continue;
      const AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::causal);
      Job mixed = prefill_job(bench, spec, shape, lengths.lens), equal = prefill_job(bench, spec, shape, constant);
      mixed.plan();
      equal.plan();
      const auto flops = [&](const std::vector<int>& lens) {
        double sum = 0;
        for (const int len : lens) sum += prefill_flops(shape, len, len);
        return sum;
      };
      const auto [mixed_s, equal_s] =
          bench.time_in_turns([&] { mixed.run(bench.team); }, [&] { equal.run(bench.team); }, 5);
      bench.report.add(
          {"attention", name, "rate", flops(lengths.lens) / mixed_s / 1e9, "GFLOP/s", flops(constant) / equal_s / 1e9});
    }
}

void measure_prefill(AttentionBench& bench) {
  for (const int head_dim : {64, 128})
    for (const int len : {512, 4096})
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        const Shape shape{32, 8, head_dim};
        const AttentionSpec spec = make_spec(dtype, head_dim, Mask::causal);
        const DType compute = compute_type(spec, current_isa());
        const std::string name = fmt::format("prefill causal {}q/{}kv hd{} {} tokens {} ({})", shape.qo_heads,
                                             shape.kv_heads, head_dim, len, to_string(dtype), products_of(compute));
        if ((bench.options.quick && len > 512) || !bench.wants(name)) continue;
        Job job = prefill_job(bench, spec, shape, {len});
        job.plan();
        const auto [seconds, peak] = bench.time_beside_peak(job, compute, len > 512 ? 3 : 9);
        bench.report.add(
            {"attention", name, "rate", prefill_flops(shape, len, len) / seconds / 1e9, "GFLOP/s", peak / 1e9});
      }
}

// Variants beside plain attention of the same call, by the work that their masks leave.
void measure_variants(AttentionBench& bench) {
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
      Job plain = prefill_job(bench, spec, shape, {len});
      plain.plan();
      spec.variant = row.variant;
      spec.sliding_window = row.windowed;
      Job job = prefill_job(bench, spec, shape, {len});
      if (row.windowed) job.batches[0].input.scalars = {{"window_left", static_cast<double>(window)}};
      job.batches[0].tensors.scalars = row.scalars;
      job.batches[0].tensors.tensors = row.tensors;
      job.plan();
      const auto [row_s, plain_s] = bench.time_in_turns([&] { job.run(bench.team); }, [&] { plain.run(bench.team); },
                                                        bench.options.quick ? 3 : 5);
      const double rate = prefill_flops(shape, len, row.windowed ? window : len) / row_s;
      bench.report.add(
          {"attention", name, "rate", rate / 1e9, "GFLOP/s", prefill_flops(shape, len, len) / plain_s / 1e9});
    }
}

}  // namespace

void measure_attention(const BenchOptions& options, BenchReport& report) {
  if (options.device != Device::cpu()) return measure_attention_on_card(options, report);
  WorkerTeam team(options.threads);
  report.note(fmt::format("{}, {}, {} threads; random data, shuffled pages, NHD", cpu_info().model,
                          to_string(current_isa()), team.num_workers()));
  AttentionBench bench{.options = options, .report = report, .team = team, .memory = {}};
  if (options.numerics) {
    report.note(
        "errors against fp64 as a share of the bound of docs/numerics.md; decode over 2000 keys, prefill of 70 after "
        "230");
    return measure_numerics(bench);
  }
  report.note(
      "decode: bytes of K and V read once, beside a plain read of memory of their size; prefill: beside the rate of "
      "the instruction that multiplies; `by`: beside the other case of the same run, by the work left");
  measure_decode(bench);
  measure_few_tokens(bench);
  measure_narrow_caches(bench);
  measure_decode_lengths(bench);
  measure_prefill_lengths(bench);
  measure_prefill(bench);
  measure_variants(bench);
  measure_forms(bench);
}

}  // namespace weft::bench
