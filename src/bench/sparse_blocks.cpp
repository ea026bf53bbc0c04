// Blocks: sparse attention's SpMM and SDDMM over a band and a butterfly, and pruned weights. A row is held against what
// its operations take at the rate of the fastest multiply-add, or its bytes at that of reading, whichever is longer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "bench/batch.h"
#include "bench/probe.h"
#include "bench/sparse_bench.h"
#include "device/cpu/cpuid.h"

namespace weft::bench {
namespace {

struct Blocks {
  std::string name;
  sparse::Structure structure;
  int64_t block, heads, feat;
  DType dtype;
};

// Block rows by block columns, `density` of them stored, at random.
sparse::Structure pruned(int64_t rows, int64_t cols, double density) {
  std::mt19937_64 random(3);
  std::vector<int32_t> indptr = {0}, indices;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j)
      if (static_cast<double>(random() >> 11) * 0x1p-53 < density) indices.push_back(static_cast<int32_t>(j));
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  return sparse::csr(rows, cols, indptr, indices);
}

struct Tensor {
  Tensor(DType dtype, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    memory = Workspace(Device::cpu(), static_cast<size_t>(std::max<int64_t>(count, 1) * bits_of(dtype) / 8) + 64);
    fill_random(memory.data(), dtype, count, static_cast<unsigned>(count));
    view = TensorView(memory.data(), dtype, shape);
  }
  double bytes() const { return static_cast<double>(view.size() * bits_of(view.dtype()) / 8); }
  Workspace memory;
  TensorView view;
};

void measure(SparseBench& bench, const Blocks& b) {
  const sparse::Structure& s = b.structure;
  const Tensor stored(b.dtype, {b.heads, s.nnz(), b.block, b.block});
  const Tensor rows(b.dtype, {b.heads, s.num_rows() * b.block, b.feat});
  const Tensor cols(b.dtype, {b.heads, s.num_cols() * b.block, b.feat});
  const double flops = 2. * static_cast<double>(b.heads * s.nnz() * b.block * b.block * b.feat);
  const double bytes = stored.bytes() + rows.bytes() + cols.bytes();
  const bool dots = b.dtype == DType::bf16 && is_bf16_dot_fast();
  const Workspace memory = memory_to_read(bench.team, std::max<size_t>(static_cast<size_t>(bytes), size_t{1} << 20));
  const Probe ops = arithmetic_of(bench.team, dots ? Instruction::bf16_dot : Instruction::fp32_multiply_add).ops;
  const std::vector<Probe> probes = {
      ops, probe_read(bench.team, static_cast<const char*>(memory.data()), memory.bytes(), memory.bytes())};
  const auto row = [&](const std::string& name, const std::function<void()>& work) {
    if (name.find(bench.options.only) == std::string::npos) return;
    const TimedBeside timed = time_beside(work, probes, bench.options.quick ? 3 : 9, bench.options.quick ? 0.05 : 0.3);
    bench.report.add({.bench = "sparse",
                      .name = name,
                      .metric = "rate",
                      .value = flops / timed.median_s / 1e9,
                      .unit = "GFLOP/s",
                      .ceiling = std::min(timed.ceilings[0], flops / bytes * timed.ceilings[1]) / 1e9});
    bench.report.add({.bench = "sparse", .name = name, .metric = "floor", .value = bytes / 1e6, .unit = "MB"});
  };
  const std::string of = fmt::format("{} {}", b.name, to_string(b.dtype));
  row("block spmm " + of, [&] { sparse::block_spmm(s, stored.view, cols.view, rows.view, bench.stream); });
  if (b.heads > 1)
    row("block sddmm " + of, [&] { sparse::block_sddmm(s, rows.view, cols.view, stored.view, bench.stream); });
}

}  // namespace

void measure_blocks(SparseBench& bench) {
  bench.report.note(
      "blocks: ceiling the lesser of multiply-adds (bf16 dots where the machine's are the faster ones) and bytes");
  constexpr int64_t kTokens = 4096, kBlock = 32;
  const int64_t heads = bench.options.quick ? 2 : 12;
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    // A band of 256 tokens: 128 to either side.
    measure(bench, {fmt::format("longformer 4096 x {} heads d64 band 256", heads), sparse::band(kTokens / kBlock, 4),
                    kBlock, heads, 64, dtype});
    measure(bench, {fmt::format("butterfly 4096 x {} heads d64", heads),
                    sparse::butterfly(kTokens / kBlock, kTokens / kBlock / 2), kBlock, heads, 64, dtype});
    const int64_t size = bench.options.quick ? 1024 : 4096;
    measure(bench, {fmt::format("pruned {0} x {0} block 32 density 0.1 F512", size),
                    pruned(size / kBlock, size / kBlock, 0.1), kBlock, 1, 512, dtype});
  }
}

}  // namespace weft::bench
