// `weft bench model --device cuda:0`: a model file, or a shape with random weights, a token at a time. The bound of a
// step is a read of all weights and of the keys and values before it, at the rate of this run.
#include "weft/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "bench/cuda/card.h"
#include "bench/measure.h"
#include "bench/random_weights.h"
#include "bench/timing.h"
#include "decode/forward.h"

namespace weft::bench {
namespace {

// Llama 3.1 8B and Llama 3.2 1B.
ModelConfig config_of(const std::string& shape) {
  ModelConfig config;
  config.architecture = config.name = "llama";
  config.vocab_size = 128256;
  config.context_length = 8192;
  config.num_qo_heads = 32;
  config.num_kv_heads = 8;
  config.rope.theta = 500000.f;
  const bool large = shape == "8b";
  config.num_layers = large ? 32 : 16;
  config.hidden_size = large ? 4096 : 2048;
  config.intermediate_size = large ? 14336 : 8192;
  config.head_dim = large ? 128 : 64;
  config.tied_embeddings = !large;
  return config;
}

decode::ModelSources random_sources(const ModelConfig& config, WeightType type) {
  const RandomWeights random(type, 0.02f);
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t q = int64_t{config.num_qo_heads} * config.head_dim, kv = int64_t{config.num_kv_heads} * config.head_dim;
  const std::vector<float> ones(static_cast<size_t>(hidden), 1.f);
  decode::ModelSources sources;
  sources.embedding = {random.source(config.vocab_size, hidden)};
  if (!config.tied_embeddings) sources.own_head = {random.source(config.vocab_size, hidden)};
  sources.output_norm = ones;
  for (int i = 0; i < config.num_layers; ++i)
    sources.layers.push_back({.vectors = {.attn_norm = ones, .ffn_norm = ones},
                              .qkv = {random.source(q, hidden), random.source(kv, hidden), random.source(kv, hidden)},
                              .output = {random.source(hidden, q)},
                              .gate_up = {random.source(intermediate, hidden), random.source(intermediate, hidden)},
                              .down = {random.source(hidden, intermediate)}});
  return sources;
}

// Kernels of a step of one row, which runs for the first time: later ones are a graph of them.
int64_t nodes_of_step(ForwardPass& forward, cuda::Card& card) {
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> token{7};
  const int64_t before = card.num_launches();
  forward.run({{.sequence = sequence, .tokens = token}});
  forward.release(sequence);
  return card.num_launches() - before;
}

constexpr int kParts = 51;  // steps whose parts are measured

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

}  // namespace

void measure_model_on_card(const BenchOptions& options, BenchReport& report) {
  check(options.model.empty() != options.shape.empty(), ErrorCode::invalid_argument,
        "bench model --device {}: give --model FILE or --shape 8b or 1b, one of them", to_string(options.device));
  CardBench bench(options.device);
  report.note(
      fmt::format("{}: {}; a step from ids to logits on the host, beside a read of all weights and of the keys "
                  "and values before it; \"step by bound\": its time by that read and as many empty nodes of a graph",
                  to_string(options.device), bench.card().name()));
  ForwardOptions forward_options{.precision = precision_from_string(options.precision),
                                 .device = options.device,
                                 .max_tokens = 8192,
                                 .step = step_form_from_string(options.step)};
  std::optional<ForwardPass> forward;
  std::string name = fmt::format("{} {} random", options.shape, options.weights);
  if (!options.shape.empty()) {
    const ModelConfig config = config_of(options.shape);
    forward.emplace(
        make_forward_pass(config, random_sources(config, weight_type_from_string(options.weights)), forward_options));
  } else {
    const ModelFile file(options.model);
    name = file.config().name;
    forward.emplace(file, forward_options);
  }
  const int64_t nodes = nodes_of_step(*forward, bench.card());
  report.note(fmt::format("{}: {}; {} kernels a step", name, forward->step_form(), nodes));
  for (const int context : {128, 1024, 6144}) measure_decode(*forward, name, context, nodes, bench, report);
}

}  // namespace weft::bench
