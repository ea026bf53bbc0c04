// `weft bench ceilings --device cuda:0`: what rows on a card stand beside.
#include <fmt/format.h>

#include "bench/cuda/card.h"
#include "bench/measure.h"

namespace weft::bench {

void measure_ceilings_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}, {} multiprocessors; nodes of a graph over {} MB, medians", to_string(options.device),
                          bench.card().name(), bench.card().num_multiprocessors(), bench.pool_bytes() >> 20));
  const auto add = [&](const std::string& name, const char* metric, double value, const char* unit) {
    report.add({.bench = "ceilings", .name = name, .metric = metric, .value = value, .unit = unit});
  };
  for (const size_t megabytes : {4, 32, 256, 1024})
    add(fmt::format("read {} MB", megabytes), "bandwidth", bench.read_rate(megabytes << 20) / 1e9, "GB/s");
  add("copy, read and written", "bandwidth", bench.copy_rate() / 1e9, "GB/s");
  add("products of warps, fp16", "rate", bench.product_rate() / 1e12, "TFLOP/s");
  add("empty node of a graph", "time", bench.node_seconds(false) * 1e6, "us");
  add("empty node, dependent launch", "time", bench.node_seconds(true) * 1e6, "us");
}

}  // namespace weft::bench
