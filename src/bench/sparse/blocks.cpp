// Blocks: sparse attention's SpMM and SDDMM over a band and a butterfly, and pruned weights. A row is held against what
// its operations take at the rate of the fastest multiply-add, or its bytes at that of reading, whichever is longer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/block_work.h"
#include "bench/probe.h"
#include "bench/sparse/rows.h"
#include "device/cpu/cpuid.h"

namespace weft::bench {
namespace {

std::string name_of(const char* op, const BlockCase& blocks, DType dtype) {
  return fmt::format("block {} {} {}", op, blocks.name, to_string(dtype));
}

bool is_wanted(const SparseBench& bench, const char* op, const BlockCase& blocks, DType dtype) {
  return wants(bench, name_of(op, blocks, dtype));
}

void measure(SparseBench& bench, const BlockWork& work) {
  const bool dots = work.dtype() == DType::bf16 && is_bf16_dot_fast();
  const RowCeiling ceiling(bench.team, dots ? Instruction::bf16_dot : Instruction::fp32_multiply_add, work.flops(),
                           work.bytes());
  const auto row = [&](const char* op, const std::function<void()>& run) {
    if (!is_wanted(bench, op, work.blocks(), work.dtype())) return;
    const std::string name = name_of(op, work.blocks(), work.dtype());
    const TimedBeside timed =
        time_beside(run, ceiling.probes(), bench.options.quick ? 3 : 9, bench.options.quick ? 0.05 : 0.3);
    bench.report.add({.bench = "sparse",
                      .name = name,
                      .metric = "rate",
                      .value = work.flops() / timed.median_s / 1e9,
                      .unit = "GFLOP/s",
                      .ceiling = ceiling.of(timed) / 1e9});
    bench.report.add({.bench = "sparse", .name = name, .metric = "floor", .value = work.bytes() / 1e6, .unit = "MB"});
  };
  row("spmm", [&] { work.spmm(bench.stream); });
  if (work.blocks().heads > 1) row("sddmm", [&] { work.sddmm(bench.stream); });
}

}  // namespace

void measure_blocks(SparseBench& bench) {
  bool noted = false;
  for (const DType dtype : {DType::bf16, DType::fp32})
    for (const char* pattern : {"longformer", "butterfly", "pruned"})
      for (const int64_t feat : bench.options.quick ? std::vector<int64_t>{0} : sparse_feats()) {
        const BlockCase blocks = block_case(pattern, bench.options.quick, feat);
        if (!is_wanted(bench, "spmm", blocks, dtype) && !is_wanted(bench, "sddmm", blocks, dtype)) continue;
        if (!std::exchange(noted, true))
          bench.report.note(
              "blocks: ceiling the lesser of multiply-adds (bf16 dots where the machine's are the faster ones) and "
              "bytes");
        measure(bench, BlockWork(blocks, dtype));
      }
}

}  // namespace weft::bench
