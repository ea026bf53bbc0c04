// `weft bench decode --device cuda:0 --study NAME`.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "bench/cuda/studies.h"
#include "bench/measure.h"

namespace weft::bench {
namespace {

struct RunStudy {
  Study about;
  void (*run)(const BenchOptions& options, CardBench& bench, BenchReport& report);
};
constexpr RunStudy kRuns[] = {
    {{"deep-linear", "products alone, layer after layer: apart, fused, with overlap, rows of x, warps"},
     measure_deep_linear},
    {{"attention-stack", "blocks of attention alone: layered, fused, with overlap"}, measure_attention_stack},
    {{"glu-stack", "gated feed-forward blocks alone: layered, fused, with overlap"}, measure_glu_stack},
    {{"depth-size", "numbers and sizes of the ring's entries, a table"}, measure_depth_and_size},
    {{"edges", "forms of edges between phases: microseconds of a phase"}, measure_edges}};

}  // namespace

std::span<const Study> decode_studies() {
  static const auto studies = [] {
    std::array<Study, std::size(kRuns)> all{};
    std::ranges::transform(kRuns, all.begin(), &RunStudy::about);
    return all;
  }();
  return studies;
}

void measure_decode_studies(const BenchOptions& options, BenchReport& report) {
  check(options.device.kind == DeviceKind::cuda, ErrorCode::unsupported,
        "device: required a card for studies of decoding, supported is --device cuda:0, missing on {}",
        to_string(options.device));
  const auto study = std::ranges::find(kRuns, options.study, [](const RunStudy& run) { return run.about.name; });
  if (study == std::end(kRuns)) {
    std::string names;
    for (const Study& each : decode_studies()) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
    fail(ErrorCode::invalid_argument, "study = '{}'; allowed are {}", options.study, names);
  }
  CardBench bench(options.device);
  report.note(
      fmt::format("{}: {}, {} multiprocessors; nodes of a graph, medians, beside reads of as many bytes in turns",
                  to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  study->run(options, bench, report);
}

}  // namespace weft::bench
