#include "bench/cuda/sparse_blocks.h"

#include <fmt/format.h>

#include <random>
#include <string>

#include "bench/batch.h"
#include "bench/block_work.h"
#include "bench/cuda/placed.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::bench {
namespace {

struct BlockRow {
  std::string name;
  double flops, bytes;  // of what is stored; of all tensors once
};

bool is_wanted(const BenchOptions& options, const std::string& name) { return name.find(options.only) != name.npos; }

void add_row(CardBench& bench, const BlockRow& row, const std::function<void()>& call, BenchReport& report) {
  const CardBench::Beside timed = bench.time_beside_products({kCallsOfGraph, [&](int) { call(); }});
  const auto add = [&](const char* metric, double value, const char* unit, double ceiling = 0) {
    report.add(
        {.bench = "sparse", .name = row.name, .metric = metric, .value = value, .unit = unit, .ceiling = ceiling});
  };
  add("rate", row.flops / timed.seconds / 1e9, "GFLOP/s", timed.ceiling / 1e9);
  add("bandwidth of the floor", row.bytes / timed.seconds / 1e9, "GB/s",
      bench.read_rate(static_cast<size_t>(row.bytes)) / 1e9);
  add("time", timed.seconds * 1e6, "us");
}

void measure_patterns(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  for (const char* pattern : {"longformer", "butterfly", "pruned"}) {
    const BlockCase blocks = block_case(pattern, options.quick);
    const std::string spmm = fmt::format("block spmm {} bf16", blocks.name),
                      sddmm = fmt::format("block sddmm {} bf16", blocks.name);
    const bool has_sddmm = blocks.heads > 1 && is_wanted(options, sddmm);
    if (!is_wanted(options, spmm) && !has_sddmm) continue;
    const BlockWork work(blocks, DType::bf16, bench.device());
    if (is_wanted(options, spmm))
      add_row(
          bench, {spmm, work.flops(), work.bytes()}, [&] { work.spmm(bench.stream()); }, report);
    if (has_sddmm)
      add_row(
          bench, {sddmm, work.flops(), work.bytes()}, [&] { work.sddmm(bench.stream()); }, report);
  }
}

// Elements at random, in strips of tiles 8 x 1 in groups of 32, beside the same ones in blocks of 32 that hold any.
struct Pruned {
  sparse::Converted strips, blocks;
  int64_t count = 0;
};
Pruned pruned_elements(int64_t size, double density) {
  sparse::Coo coo{.num_rows = size, .num_cols = size};
  std::mt19937_64 random(3);
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < size; ++j)
      if (static_cast<double>(random() >> 11) * 0x1p-53 < density) {
        coo.rows.push_back(static_cast<int32_t>(i));
        coo.cols.push_back(static_cast<int32_t>(j));
      }
  return {sparse::sr_bcrs_from_coo(coo, 8, 32), sparse::bsr_from_coo(coo, 32), static_cast<int64_t>(coo.rows.size())};
}

// bf16 on the card.
class Tensor {
 public:
  Tensor(CardBench& bench, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    const Workspace random(Device::cpu(), static_cast<size_t>(count) * 2);
    fill_random(random.data(), DType::bf16, count, static_cast<unsigned>(count));
    memory_ = placed(bench.device(), random.data(), static_cast<size_t>(count) * 2);
    view_ = TensorView(memory_.data(), DType::bf16, shape, bench.device());
  }
  operator const TensorView&() const { return view_; }  // NOLINT: it is what operators take

 private:
  Workspace memory_;
  TensorView view_;
};

// What pruned weights are to be faster than.
void measure_dense(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  const int64_t size = options.quick ? 512 : 4096, feat = 512;
  const std::string name = fmt::format("dense product {0} x {0} F{1} bf16", size, feat);
  if (!is_wanted(options, name)) return;
  const Tensor a(bench, {size, size}), b(bench, {size, feat}), c(bench, {size, feat});
  try {
    add_row(
        bench, {name, 2. * static_cast<double>(size * size * feat), 2. * static_cast<double>(size * (size + 2 * feat))},
        [&] { matmul(a, b, c, {}, bench.stream()); }, report);
  } catch (const Error& error) {
    report.note(fmt::format("{}: {}", name, error.what()));
  }
}

void measure_densities(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  const int64_t size = options.quick ? 512 : 4096, feat = 512;
  for (const int denominator : options.quick ? std::vector{8} : std::vector{256, 128, 64, 32, 16, 8, 4}) {
    const auto name = [&](const char* format) {
      return fmt::format("pruned weights {0} x {0} density 1/{1} F{2} {3} bf16", size, denominator, feat, format);
    };
    const std::string of_strips = name("sr_bcrs(8, 32)"), of_blocks = name("bsr(32)");
    if (!is_wanted(options, of_strips) && !is_wanted(options, of_blocks)) continue;
    const Pruned pruned = pruned_elements(size, 1. / denominator);
    const Tensor b(bench, {size, feat}), c(bench, {size, feat});
    const double flops = 2. * static_cast<double>(pruned.count * feat);
    const auto bytes = [&](int64_t stored) { return 2. * static_cast<double>(stored + 2 * size * feat); };
    if (is_wanted(options, of_strips)) {
      const auto stored = static_cast<int64_t>(pruned.strips.order.size());
      const Tensor values(bench, {stored / 256, 32, 8});
      add_row(
          bench, {of_strips, flops, bytes(stored)},
          [&] { sparse::sr_bcrs_spmm(pruned.strips.structure, values, b, c, bench.stream()); }, report);
    }
    if (is_wanted(options, of_blocks)) {
      const auto stored = static_cast<int64_t>(pruned.blocks.order.size());
      const Tensor values(bench, {stored / 1024, 32, 32});
      add_row(
          bench, {of_blocks, flops, bytes(stored)},
          [&] { sparse::block_spmm(pruned.blocks.structure, values, b, c, bench.stream()); }, report);
    }
  }
}

}  // namespace

void measure_blocks_on_card(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  report.note(
      "blocks: bf16, beside products of large matrices by tensor cores; rates count what is stored, of pruned "
      "weights elements that are not 0");
  measure_patterns(bench, options, report);
  measure_dense(bench, options, report);
  measure_densities(bench, options, report);
}

}  // namespace weft::bench
