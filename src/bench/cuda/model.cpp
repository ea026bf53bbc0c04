// `weft bench model --device cuda:0`: a model file, or a shape with random weights, a token at a time. The bound of a
// step is a read of all weights and of the keys and values before it, at the rate of this run.
#include "weft/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/cuda/card.h"
#include "bench/cuda/shapes.h"
#include "bench/cuda/step_forms.h"
#include "bench/measure.h"
#include "bench/random_weights.h"
#include "bench/timing.h"
#include "decode/forward.h"

namespace weft::bench {
namespace {

// Kernels of a step of one row, which runs for the first time: later ones are a graph of them.
int64_t nodes_of_step(ForwardPass& forward, cuda::Card& card) {
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> token{7};
  const int64_t before = card.num_launches();
  forward.run({{.sequence = sequence, .tokens = token}});
  forward.release(sequence);
  return card.num_launches() - before;
}

constexpr std::string_view kBothForms = "both";  // of BenchOptions::step
constexpr int kParts = 51;                       // steps whose parts are measured

// One sequence of `context` tokens, a step at a time.
void measure_decode(ForwardPass& forward, const std::string& name, int context, int64_t nodes, CardBench& bench,
                    BenchReport& report) {
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> prompt(static_cast<size_t>(context), 7);
  const std::vector<int32_t> next{11};
  double prefill_s = seconds_of([&] { forward.run({{.sequence = sequence, .tokens = prompt}}); });
  forward.truncate(sequence, 0);
  prefill_s = std::min(prefill_s, seconds_of([&] { forward.run({{.sequence = sequence, .tokens = prompt}}); }));
  const Timing step = time_runs(
      [&] {
        forward.run({{.sequence = sequence, .tokens = next}});
        forward.truncate(sequence, context);
      },
      20, 0.5);
  std::vector<decode::StepSeconds> parts;
  for (int i = 0; i < kParts; ++i) {
    forward.run({{.sequence = sequence, .tokens = next}});
    parts.push_back(decode::StepProbe::last(forward));
    if (i + 1 < kParts) forward.truncate(sequence, context);
  }
  const double replayed_s = decode::StepProbe::replay(forward, kParts);
  if (const std::string trace = decode::StepProbe::trace(forward); !trace.empty())
    report.note(fmt::format("{}, {} tokens: microseconds of a worker\n{}", name, context, trace));
  forward.release(sequence);
  const double bytes = static_cast<double>(forward.weight_bytes()) +
                       static_cast<double>(forward.kv_bytes_per_token()) * static_cast<double>(context);
  const double rate = bench.read_rate(std::min(forward.weight_bytes(), bench.pool_bytes()));
  const std::string row = fmt::format("{} decode batch1 ctx{}", name, context);
  report.add({"model", row, "speed", 1 / step.median_s, "tok/s", rate / bytes});
  report.add({"model", row, "step", step.median_s * 1e6, "us"});
  report.add({"model", row, "step by bound",
              step.median_s / (static_cast<double>(nodes) * bench.node_seconds(true) + bytes / rate), "x"});
  const auto add_part = [&](const char* metric, double decode::StepSeconds::*part) {
    std::vector<double> seconds;
    for (const decode::StepSeconds& of_step : parts) seconds.push_back(of_step.*part);
    report.add({"model", row, metric, median(seconds) * 1e6, "us"});
  };
  add_part("host: plan", &decode::StepSeconds::plan);
  add_part("host: upload", &decode::StepSeconds::upload);
  add_part("host: graph launch", &decode::StepSeconds::enqueue);
  add_part("host: wait", &decode::StepSeconds::wait);
  report.add({"model", row, "graph, one after another", replayed_s * 1e6, "us"});
  report.add({"model", fmt::format("{} prefill {}", name, context), "speed", context / prefill_s, "tok/s"});
}

// Steps of several rows, each of a sequence of its own with so many tokens: what a step takes beyond the read of their
// keys and values, by what one row takes so.
void measure_rows(ForwardPass& forward, const std::string& name, StepForm form, int context, CardBench& bench,
                  BenchReport& report) {
  const std::vector<int32_t> prompt(static_cast<size_t>(context), 7);
  const std::vector<int32_t> next{11};
  const double kv_s = static_cast<double>(forward.kv_bytes_per_token()) * static_cast<double>(context) /
                      bench.read_rate(std::min(forward.weight_bytes(), bench.pool_bytes()));
  std::vector<ForwardPass::SequenceId> sequences;
  std::vector<ForwardPass::Input> inputs;
  double alone_s = 0;
  for (const size_t rows : {1, 2, 4, 8}) {
    if (static_cast<int64_t>(rows) > decode::StepProbe::most_rows(forward, form)) {
      report.note(fmt::format("{}: no steps of {} rows and more; {}", name, rows, forward.step_form()));
      break;
    }
    while (sequences.size() < rows) {
      sequences.push_back(forward.add_sequence());
      forward.run({{.sequence = sequences.back(), .tokens = prompt}});
      inputs.push_back({.sequence = sequences.back(), .tokens = next});
    }
    const Timing step = time_runs(
        [&] {
          forward.run(inputs);
          for (const ForwardPass::SequenceId sequence : sequences) forward.truncate(sequence, context);
        },
        20, 0.3);
    const double own_s = step.median_s - static_cast<double>(rows) * kv_s;
    if (rows == 1) {
      alone_s = own_s;
      continue;
    }
    const std::string row = fmt::format("{} decode batch{} ctx{}", name, rows, context);
    report.add({"model", row, "step", step.median_s * 1e6, "us"});
    report.add({"model", row, "without keys and values, by one row's", own_s / alone_s, "x"});
  }
  for (const ForwardPass::SequenceId sequence : sequences) forward.release(sequence);
}

}  // namespace

void measure_model_on_card(const BenchOptions& options, BenchReport& report) {
  check(options.model.empty() != options.shape.empty(), ErrorCode::invalid_argument,
        "bench model --device {}: give --model FILE or --shape 70b, 8b or 1b, one of them", to_string(options.device));
  CardBench bench(options.device);
  report.note(
      fmt::format("{}: {}; a step from ids to logits on the host, beside a read of all weights and of the keys "
                  "and values before it; \"step by bound\": its time by that read and as many empty nodes of a graph",
                  to_string(options.device), bench.card().name()));
  const bool takes_both = options.step == kBothForms;
  ForwardOptions forward_options{.precision = precision_from_string(options.precision),
                                 .device = options.device,
                                 .max_tokens = 8192 + 8 * 1024,
                                 .max_sequences = 8,
                                 .step = takes_both ? StepForm::automatic : step_form_from_string(options.step),
                                 .step_ctas = options.step_ctas};
  std::optional<ModelFile> file;
  if (options.shape.empty()) file.emplace(options.model);
  const std::string name = file ? file->config().name : fmt::format("{} {} random", options.shape, options.weights);
  const auto make = [&](StepForm form) {
    forward_options.step = form;
    if (file) return ForwardPass(*file, forward_options);
    const ModelConfig config = config_of(options.shape);
    return make_forward_pass(config, random_sources(config, weight_type_from_string(options.weights)), forward_options);
  };
  const auto read_rate = [&](size_t bytes) { return bench.read_rate(std::min(bytes, bench.pool_bytes())); };
  if (takes_both)
    return measure_step_forms(name, {.make = make, .read_rate = read_rate, .quick = options.quick}, report);
  ForwardPass forward = make(forward_options.step);
  const int64_t nodes = nodes_of_step(forward, bench.card());
  report.note(fmt::format("{}: {}; {} kernels a step", name, forward.step_form(), nodes));
  for (const int context : {128, 1024, 3072, 6144})
    if (context < forward.config().context_length) measure_decode(forward, name, context, nodes, bench, report);
  measure_rows(forward, name, forward_options.step, 1024, bench, report);
}

}  // namespace weft::bench
