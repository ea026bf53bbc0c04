#include "bench/cuda/mixed.h"

#include <algorithm>
#include <string>

#include "bench/cuda/batch.h"
#include "bench/measure.h"
#include "device/cuda/memory.h"

namespace weft::bench {
namespace {

constexpr int kTokens = 4096, kDecodes = 128, kTimesOfMixed = 8;

// One request of kTokens new tokens, and decodes that see as many.
CardCase mixed_case(bool has_prefill, int decodes) {
  CardCase of{"", {32, 8, 128}, {}, {}};
  if (has_prefill) of.qo_lens.push_back(kTokens);
  of.qo_lens.resize(of.qo_lens.size() + static_cast<size_t>(decodes), 1);
  of.kv_lens.assign(of.qo_lens.size(), kTokens);
  return of;
}

// Memory of its own where the bench's pool is too small, with as random contents.
Workspace random_memory(CardBench& bench, int64_t bytes) {
  Workspace memory(bench.device(), static_cast<size_t>(bytes));
  auto* const to = static_cast<char*>(memory.data());
  for (size_t at = 0; at < memory.bytes(); at += bench.pool_bytes())
    cuda::copy_on_card(bench.card(), to + at, bench.pool(), std::min(bench.pool_bytes(), memory.bytes() - at),
                       static_cast<cuda::api::Stream>(bench.stream().handle()));
  return memory;
}

}  // namespace

void measure_mixed(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  const CardCase both = mixed_case(true, kDecodes), first = mixed_case(true, 0), second = mixed_case(false, kDecodes);
  const std::string name = "mixed 32q/8kv hd128 page16 bf16 prefill 4096, 128 decodes kv4096";
  if (name.find(options.only) == name.npos) return;
  const AttentionKernel kernel = kernel_of(bench, both, Mask::causal);
  Workspace cache = random_memory(bench, both.cache_bytes());
  auto* const keys = static_cast<char*>(cache.data());
  CardBatch mixed(bench, both, kernel, keys, 1), prefill(bench, first, kernel, keys, 2),
      decode(bench, second, kernel, keys + first.cache_bytes(), 3);
  const auto runs = [&](std::initializer_list<CardBatch*> batches) {
    return CardBench::Runs{kTimesOfMixed, [&bench, &kernel, in_a_row = std::vector(batches)](int) {
                             for (CardBatch* batch : in_a_row) kernel.run(batch->plan, batch->tensors, bench.stream());
                           }};
  };
  const CardBench::Turns turns = bench.time_in_turns(runs({&mixed}), runs({&prefill, &decode}));
  const CardBench::Turns alone = bench.time_in_turns(runs({&prefill}), runs({&decode}));
  report.add({"attention", name, "time", turns.first * 1e6, "us"});
  report.add({"attention", name, "time of the prefill alone", alone.first * 1e6, "us"});
  report.add({"attention", name, "time of the decodes alone", alone.second * 1e6, "us"});
  report.add({"attention", name, "time over two launches in a row", turns.first / turns.second, "x"});
}

}  // namespace weft::bench
