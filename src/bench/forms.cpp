// `weft bench attention`: forms of caches beyond pages of whole heads, each beside the plain call that it stands for.
#include <fmt/format.h>

#include <algorithm>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "bench/calls.h"
#include "bench/variants.h"
#include "weft/levels.h"

namespace weft::bench {
namespace {

// MLA: each latent row serves every query head, which makes decode a matter of arithmetic.
void measure_latent(AttentionBench& bench) {
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
        const auto [seconds, peak] = bench.time_beside_peak(job, compute, 9);
        const double flops = 2. * heads * (spec.head_dim_qk + spec.head_dim_vo) * kv_len * requests;
        bench.report.add({"attention", name, "rate", flops / seconds / 1e9, "GFLOP/s", peak / 1e9});
      }
}

// Decode of requests that share their first tokens: with the levels that are found, beside the plain plan.
void measure_levels(AttentionBench& bench) {
  struct Case {
    int prefix, own, requests;
  };
  for (const Case& c : {Case{64, 512, 2}, {64, 512, 16}, {256, 512, 2}, {256, 512, 16}, {4096, 64, 16}})
    for (const Shape& shape : {Shape{32, 8, 128}, {9, 3, 64}}) {
      const std::string name = fmt::format("decode {}q/{}kv hd{} batch{}, {} shared and {} own tokens: levels by plain",
                                           shape.qo_heads, shape.kv_heads, shape.head_dim, c.requests, c.prefix, c.own);
      if (!bench.wants(name)) continue;
      constexpr int kPage = 16;
      const AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
      const std::vector<int> lens(static_cast<size_t>(c.requests), c.prefix + c.own);
      const int64_t held = int64_t{c.requests} * (c.prefix + c.own) * 2 * shape.kv_heads * shape.head_dim * 2;
      if (held > bench.pool().bytes()) continue;  // a quick run has less
      Job plain{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
      Job shared{.kernel = plain.kernel, .batches = {}, .workspaces = {}};
      std::vector<SharedLevels> levels;
      for (int64_t at = 0; at + held <= bench.pool().bytes(); at += held)
        for (Job* job : {&plain, &shared}) {
          Batch& batch = job->batches.emplace_back(spec, shape, 1, lens, kPage, bench.team.num_workers(),
                                                   bench.pool().data() + at);
          for (size_t r = 1; r < lens.size(); ++r)
            std::copy_n(batch.page_indices.begin(), c.prefix / kPage,
                        batch.page_indices.begin() + batch.page_indptr[r]);
          if (job == &plain) continue;
          levels.push_back(levels_from_page_tables(job->kernel, batch.input));
          batch.input = levels.back().apply(batch.input);
        }
      plain.plan();
      shared.plan();
      plain.next = plain.batches.size() / 2;  // far from what the other one has just read
      const auto [shared_s, plain_s] =
          bench.time_in_turns([&] { shared.run(bench.team); }, [&] { plain.run(bench.team); });
      const std::string found = levels[0].empty() ? " (none found)" : "";
      bench.report.add({"attention", name + found, "rate", 1 / shared_s, "1/s", 1 / plain_s});
    }
}

// The first tokens and a window of recent ones: a long context beside a short one.
void measure_streaming(AttentionBench& bench) {
  const Shape shape{32, 8, 128};
  const int window = bench.options.quick ? 256 : 1024, longest = bench.options.quick ? 8192 : 65536;
  const std::string name = fmt::format("decode 4 sinks and window {}, {}q/{}kv hd{} kv{} by kv{}", window,
                                       shape.qo_heads, shape.kv_heads, shape.head_dim, longest, longest / 8);
  if (!bench.wants(name)) return;
  AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::causal);
  spec.variant.scalars = {{"sinks", ScalarKind::integer}, {"window", ScalarKind::integer}};
  spec.variant.intervals = {{.upper = {{.scalar = "sinks"}}},
                            {.lower = {{.q_pos = true, .constant = 1, .scalar = "window", .scalar_sign = -1}}}};
  const AttentionKernel kernel = build(spec, Device::cpu());
  const std::vector<ScalarArg> scalars = {{"sinks", 4.}, {"window", static_cast<double>(window)}};
  std::vector<Batch> batches;
  std::vector<Workspace> workspaces;
  batches.reserve(2);
  for (const int kv_len : {longest, longest / 8}) {
    Batch& batch = batches.emplace_back(spec, shape, 1, std::vector<int>{kv_len}, 16, bench.team.num_workers());
    batch.input.scalars = batch.tensors.scalars = scalars;
    workspaces.push_back(placed(kernel.plan(batch.input)));
  }
  const auto step = [&](size_t i) {
    return [&, i] { kernel.run(workspaces[i], batches[i].tensors, Stream::cpu(bench.team)); };
  };
  const auto [far_s, near_s] = bench.time_in_turns(step(0), step(1));
  bench.report.add({"attention", name, "rate", 1 / far_s, "1/s", 1 / near_s});
}

// Keys stored before their rotation and turned as they are read, beside plain decode of as many bytes.
void measure_rope(AttentionBench& bench) {
  const int kv_len = bench.options.quick ? 2048 : 8192;
  for (const Shape& shape : {Shape{32, 8, 128}, {9, 3, 64}}) {
    const std::string name = fmt::format("decode {}q/{}kv hd{} kv{} batch16 page16 bf16, RoPE inside by plain",
                                         shape.qo_heads, shape.kv_heads, shape.head_dim, kv_len);
    if (!bench.wants(name)) continue;
    const std::vector<int> lens(16, kv_len);
    int64_t bytes = 0;
    AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
    Job plain = decode_job(bench, spec, shape, lens, 16, bytes);
    spec.variant = rope_inside();
    Job turned = decode_job(bench, spec, shape, lens, 16, bytes);
    const VariantTensors tables = rope_tables(kv_len, shape.head_dim);
    for (Batch& batch : turned.batches) batch.tensors.tensors = tables.args();
    const auto [turned_s, plain_s] =
        bench.time_in_turns([&] { turned.run(bench.team); }, [&] { plain.run(bench.team); });
    const double gb = static_cast<double>(bytes) / 1e9;
    bench.report.add({"attention", name, "bandwidth", gb / turned_s, "GB/s", gb / plain_s});
  }
}

}  // namespace

void measure_forms(AttentionBench& bench) {
  measure_latent(bench);
  measure_levels(bench);
  measure_block_lists(bench);
  measure_streaming(bench);
  measure_rope(bench);
}

}  // namespace weft::bench
