#include "bench/calls.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "bench/stop.h"
#include "device/cpu/cpuid.h"

namespace weft::bench {

Pool::Pool(int64_t bytes) : memory_(Device::cpu(), static_cast<size_t>(bytes)) {
  const int64_t part = std::min<int64_t>(bytes, 64 << 20);
  fill_random(data(), DType::bf16, part / 2, 1);
  for (int64_t at = part; at < bytes; at += part) {
    stop_if_asked();
    std::memcpy(data() + at, data(), static_cast<size_t>(std::min(part, bytes - at)));
  }
}

void Job::plan() {
  workspaces.clear();
  for (Batch& batch : batches) {
    stop_if_asked();
    const Plan made = kernel.plan(batch.input);
    workspaces.emplace_back(Device::cpu(), made.workspace_bytes());
    made.upload(workspaces.back());
  }
}

void Job::run(WorkerTeam& team) {
  kernel.run(workspaces[next], batches[next].tensors, Stream::cpu(team));
  next = (next + 1) % batches.size();
}

Timing Job::time(WorkerTeam& team, int min_runs, double min_seconds) {
  return time_runs([&] { run(team); }, min_runs, min_seconds);
}

Pool& AttentionBench::pool() {
  constexpr int64_t kLargestBatch = int64_t{1} << 30;  // 16 requests of 8,192 tokens in fp32
  const auto l3 = static_cast<int64_t>(cpu_info().l3_bytes);
  if (!memory) memory.emplace(options.quick ? 256 << 20 : std::max(8 * l3, kLargestBatch));
  return *memory;
}

std::pair<double, double> AttentionBench::time_in_turns(const std::function<void()>& one,
                                                        const std::function<void()>& other, int min_rounds) {
  const double min_seconds = options.quick ? 0.05 : 0.5;
  std::vector<double> times[2];
  double seconds = 0;
  for (int round = -1; round < min_rounds || seconds < min_seconds; ++round)  // the first warms up
    for (const int which : {0, 1}) {
      stop_if_asked();
      const double taken = seconds_of(which == 0 ? one : other);
      seconds += taken;
      if (round >= 0) times[which].push_back(taken);
    }
  return {median(times[0]), median(times[1])};
}

std::pair<double, double> AttentionBench::time_beside_peak(Job& job, DType compute, int min_runs) {
  const Probe probe = probe_ops(team, compute == DType::bf16 ? Instruction::bf16_dot : Instruction::fp32_multiply_add);
  const TimedBeside timed = time_beside([&] { job.run(team); }, {&probe, 1},
                                        options.quick ? std::min(min_runs, 3) : min_runs, options.quick ? 0.05 : 0.3);
  return {timed.median_s, timed.ceilings[0]};
}

Job decode_job(AttentionBench& bench, const AttentionSpec& spec, const Shape& shape, const std::vector<int>& kv_lens,
               int page_size, int64_t& bytes, int qo_len) {
  const int64_t token_bytes = int64_t{2} * shape.kv_heads * shape.head_dim * bits_of(spec.kv_dtype) / 8;
  bytes = std::accumulate(kv_lens.begin(), kv_lens.end(), int64_t{0}) * token_bytes;
  Job job{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
  int64_t pages = 0;
  for (const int len : kv_lens) pages += (len + page_size - 1) / page_size;
  const int64_t held = pages * page_size * token_bytes;
  Pool& pool = bench.pool();
  for (int64_t at = 0; at + held <= pool.bytes(); at += held) {
    stop_if_asked();
    job.batches.emplace_back(spec, shape, qo_len, kv_lens, page_size, bench.team.num_workers(), pool.data() + at);
  }
  job.plan();
  return job;
}

double prefill_flops(const Shape& shape, double len, double window) {
  const double seen = window >= len ? len * (len + 1) / 2 : window * (window + 1) / 2 + (len - window) * (window + 1);
  return 4. * shape.qo_heads * shape.head_dim * seen;  // a multiply-add in each product counts as two
}

Workspace placed(const Plan& plan) {
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  plan.upload(workspace);
  return workspace;
}

std::string products_of(DType compute) { return compute == DType::bf16 ? "bf16 dot" : "fp32 multiply-add"; }

Job prefill_job(AttentionBench& bench, const AttentionSpec& spec, const Shape& shape, const std::vector<int>& lens) {
  Job job{.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}};
  job.batches.emplace_back(spec, shape, kWholePrompts, lens, 16, bench.team.num_workers());
  return job;
}

}  // namespace weft::bench
