// `weft bench attention`: decode as a share of the machine's read bandwidth, prefill as a share of its arithmetic
// rate, and with --numerics the worst error against fp64 as a share of its bound.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/kernel.h"
#include "attention/leaf.h"
#include "attention/reference.h"
#include "cli/bench.h"
#include "device/cpu/cpuid.h"
#include "weft/attention.h"

namespace weft::cli {
namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

struct Shape {
  int qo_heads, kv_heads, head_dim;
};

int64_t bytes_of(DType dtype) { return bits_of(dtype) / 8; }

// Random numbers of about [-1, 1] in any of the three types, 8 elements at a time: a large cache fills quickly.
void fill(void* data, DType dtype, int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  auto* halves = static_cast<uint16_t*>(data);
  auto* floats = static_cast<uint32_t*>(data);
  for (int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<uint32_t>(random());
    // A sign, an exponent of 2^-1 to 2^-4, a random mantissa.
    switch (dtype) {
      case DType::fp16: halves[i] = static_cast<uint16_t>((x & 0x83ff) | (11 + (x >> 30)) << 10); break;
      case DType::bf16: halves[i] = static_cast<uint16_t>((x & 0x807f) | (123 + (x >> 30)) << 7); break;
      default: floats[i] = (x & 0x807fffff) | (123 + (x >> 23 & 3)) << 23; break;
    }
  }
}

// A batch of equal requests over a paged cache with shuffled pages.
struct Batch {
  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_indices, last_page_len;
  PlanInput input;
  Workspace q, k, v, o;
  AttentionTensors tensors;

  Batch(const AttentionSpec& spec, const Shape& shape, int requests, int qo_len, int kv_len, int page_size,
        int threads) {
    const int pages = (kv_len + page_size - 1) / page_size;
    for (int r = 0; r < requests; ++r) {
      qo_indptr.push_back(qo_indptr.back() + qo_len);
      page_indptr.push_back(page_indptr.back() + pages);
      last_page_len.push_back(kv_len - (pages - 1) * page_size);
    }
    const int64_t num_pages = int64_t{requests} * pages, rows = int64_t{requests} * qo_len;
    page_indices.resize(static_cast<size_t>(num_pages));
    std::iota(page_indices.begin(), page_indices.end(), 0);
    std::shuffle(page_indices.begin(), page_indices.end(), std::mt19937(1));
    input.num_qo_heads = shape.qo_heads;
    input.num_kv_heads = shape.kv_heads;
    input.qo_indptr = qo_indptr;
    input.pages.page_size = page_size;
    input.pages.num_pages = num_pages;
    input.pages.kv_page_indptr = page_indptr;
    input.pages.kv_page_indices = page_indices;
    input.pages.kv_last_page_len = last_page_len;
    input.num_workers = threads;
    const auto make = [](Workspace& memory, DType dtype, std::initializer_list<int64_t> dims, unsigned seed) {
      const TensorView sized(nullptr, dtype, dims);
      memory = Workspace(Device::cpu(), static_cast<size_t>(sized.size() * bytes_of(dtype)));
      fill(memory.data(), dtype, sized.size(), seed);
      return TensorView(memory.data(), dtype, dims);
    };
    tensors.q = make(q, spec.q_dtype, {rows, shape.qo_heads, shape.head_dim}, 1);
    tensors.kv.k = make(k, spec.kv_dtype, {num_pages, page_size, shape.kv_heads, shape.head_dim}, 2);
    tensors.kv.v = make(v, spec.kv_dtype, {num_pages, page_size, shape.kv_heads, shape.head_dim}, 3);
    tensors.o = make(o, spec.o_dtype, {rows, shape.qo_heads, shape.head_dim}, 4);
  }
};

AttentionSpec make_spec(DType dtype, int head_dim, Mask mask) {
  AttentionSpec spec;
  spec.q_dtype = spec.kv_dtype = spec.o_dtype = dtype;
  spec.head_dim_qk = spec.head_dim_vo = head_dim;
  spec.mask = mask;
  return spec;
}

// Runs over several batches in turn, so that no cache line is still there when its batch comes again.
Timing time_batches(const AttentionKernel& kernel, std::vector<Batch>& batches, WorkerTeam& team, bool quick) {
  std::vector<Workspace> workspaces;
  for (Batch& batch : batches) {
    const Plan plan = kernel.plan(batch.input);
    workspaces.emplace_back(Device::cpu(), plan.workspace_bytes());
    plan.upload(workspaces.back());
  }
  size_t next = 0;
  return time_runs(
      [&] {
        kernel.run(workspaces[next], batches[next].tensors, Stream::cpu(team));
        next = (next + 1) % batches.size();
      },
      quick ? 3 : 9, quick ? 0.05 : 0.3);
}

void bench_decode(const BenchOptions& options, BenchReport& report, WorkerTeam& team) {
  constexpr Shape kShapes[] = {{32, 8, 128}, {9, 3, 64}};
  const int kv_len = options.quick ? 2048 : 8192;
  for (const Shape& shape : kShapes)
    for (const DType dtype : {DType::bf16, DType::fp32})
      for (const int requests : {1, 16})
        for (const int page_size : {1, 16, 64}) {
          if (options.quick && page_size != 16) continue;
          const AttentionSpec spec = make_spec(dtype, shape.head_dim, Mask::none);
          const AttentionKernel kernel = build(spec, Device::cpu());
          const int64_t bytes = int64_t{2} * requests * kv_len * shape.kv_heads * shape.head_dim * bytes_of(dtype);
          const int64_t span = 8 * static_cast<int64_t>(std::max<size_t>(cpu_info().l3_bytes, 8 << 20));
          std::vector<Batch> batches;
          for (int64_t held = 0; held == 0 || (!options.quick && held < span); held += bytes)
            batches.emplace_back(spec, shape, requests, 1, kv_len, page_size, team.num_workers());
          // The ceiling lies between two halves of the row's runs.
          const Timing first = time_batches(kernel, batches, team, options.quick);
          const double ceiling = measure_read_bandwidth(
              team.num_workers(), static_cast<size_t>(std::max(bytes, options.quick ? bytes : span)));
          const Timing second = time_batches(kernel, batches, team, options.quick);
          const double seconds = (first.median_s + second.median_s) / 2;
          report.add({"attention",
                      fmt::format("decode {}q/{}kv hd{} kv{} batch{} page{} {}", shape.qo_heads, shape.kv_heads,
                                  shape.head_dim, kv_len, requests, page_size, to_string(dtype)),
                      "bandwidth", static_cast<double>(bytes) / seconds / 1e9, "GB/s", ceiling / 1e9});
        }
}

void bench_prefill(const BenchOptions& options, BenchReport& report, WorkerTeam& team) {
  for (const int head_dim : {64, 128})
    for (const int len : {512, 4096})
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        if (options.quick && len > 512) continue;
        const Shape shape{32, 8, head_dim};
        const AttentionSpec spec = make_spec(dtype, head_dim, Mask::causal);
        const AttentionKernel kernel = build(spec, Device::cpu());
        std::vector<Batch> batches;
        batches.emplace_back(spec, shape, 1, len, len, 16, team.num_workers());
        const bool bf16 = kernel.impl().compute == DType::bf16;
        const double ceiling = bf16 ? measure_bf16_flops(team.num_workers()) : measure_fp32_flops(team.num_workers());
        const Timing timing = time_batches(kernel, batches, team, options.quick);
        // Causal: row i sees i + 1 keys; a multiply-add in each product counts as two.
        const double flops = 4. * shape.qo_heads * head_dim * (0.5 * len * (len + 1.));
        report.add({"attention",
                    fmt::format("prefill causal {}q/{}kv hd{} {} tokens {} ({} products)", shape.qo_heads,
                                shape.kv_heads, head_dim, len, to_string(dtype), to_string(kernel.impl().compute)),
                    "rate", flops / timing.median_s / 1e9, "GFLOP/s", ceiling / 1e9});
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

// The worst |o - o*| / bound over decode and prefill shapes, for each combination of types.
void bench_numerics(const BenchOptions& options, BenchReport& report, WorkerTeam& team) {
  struct Lengths {
    int qo_len, kv_len;
  };
  constexpr Lengths kLengths[] = {{1, 2000}, {70, 300}};
  for (const DType q : kTypes)
    for (const DType kv : kTypes)
      for (const DType o : kTypes) {
        AttentionSpec spec = make_spec(q, 64, Mask::causal);
        spec.kv_dtype = kv;
        spec.o_dtype = o;
        const AttentionKernel kernel = build(spec, Device::cpu());
        double worst = 0;
        for (const Lengths& lengths : kLengths) {
          if (options.quick && lengths.qo_len > 1) continue;
          Batch batch(spec, {4, 2, 64}, 1, lengths.qo_len, lengths.kv_len, 16, team.num_workers());
          batch.tensors.sm_scale = 1.f;  // sharp enough that single keys win
          const ReferenceResult expected = attention_reference(spec, batch.input, batch.tensors);
          const Plan plan = kernel.plan(batch.input);
          Workspace workspace(Device::cpu(), plan.workspace_bytes());
          kernel.run(plan, batch.tensors, workspace, Stream::cpu(team));
          for (size_t i = 0; i < expected.o.size(); ++i) {
            const double bound =
                error_bound(spec, kernel.impl().compute, lengths.kv_len, expected.o[i], expected.scale[i]);
            worst =
                std::max(worst, std::abs(value_of(batch.tensors.o, static_cast<int64_t>(i)) - expected.o[i]) / bound);
          }
        }
        report.add({"attention",
                    fmt::format("numerics q {} kv {} o {} ({} products)", to_string(q), to_string(kv), to_string(o),
                                to_string(kernel.impl().compute)),
                    "worst error / bound", worst, "", 1});
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
      "decode: bytes of K and V read once, beside a plain read of the same size; prefill: beside the multiply-add "
      "rate");
  bench_decode(options, report, team);
  bench_prefill(options, report, team);
}

}  // namespace weft::cli
