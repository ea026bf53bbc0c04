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

// Llama 3.1 70B and 8B, and Llama 3.2 1B.
ModelConfig config_of(const std::string& shape) {
  ModelConfig config;
  config.architecture = config.name = "llama";
  config.vocab_size = 128256;
  config.context_length = 8192;
  config.num_kv_heads = 8;
  config.rope.theta = 500000.f;
  const bool is_small = shape == "1b", is_large = shape == "70b";
  config.num_qo_heads = is_large ? 64 : 32;
  config.num_layers = is_large ? 80 : is_small ? 16 : 32;
  config.hidden_size = is_large ? 8192 : is_small ? 2048 : 4096;
  config.intermediate_size = is_large ? 28672 : is_small ? 8192 : 14336;
  config.head_dim = is_small ? 64 : 128;
  config.tied_embeddings = is_small;
  return config;
}

// All weights of one type; embedding and head stay bf16 beside groups of 128, as quantised models keep them.
decode::ModelSources random_sources(const ModelConfig& config, WeightType type) {
  const RandomWeights random(type, 0.02f), of_head(type == WeightType::q4_g128 ? WeightType::bf16 : type, 0.02f);
  const int64_t hidden = config.hidden_size, intermediate = config.intermediate_size;
  const int64_t q = int64_t{config.num_qo_heads} * config.head_dim, kv = int64_t{config.num_kv_heads} * config.head_dim;
  const std::vector<float> ones(static_cast<size_t>(hidden), 1.f);
  decode::ModelSources sources;
  sources.embedding = {of_head.source(config.vocab_size, hidden)};
  if (!config.tied_embeddings) sources.own_head = {of_head.source(config.vocab_size, hidden)};
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
void measure_rows(ForwardPass& forward, const std::string& name, int context, CardBench& bench, BenchReport& report) {
  const std::vector<int32_t> prompt(static_cast<size_t>(context), 7);
  const std::vector<int32_t> next{11};
  const double kv_s = static_cast<double>(forward.kv_bytes_per_token()) * static_cast<double>(context) /
                      bench.read_rate(std::min(forward.weight_bytes(), bench.pool_bytes()));
  std::vector<ForwardPass::SequenceId> sequences;
  std::vector<ForwardPass::Input> inputs;
  double alone_s = 0;
  for (const size_t rows : {1, 2, 4, 8}) {
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
  ForwardOptions forward_options{.precision = precision_from_string(options.precision),
                                 .device = options.device,
                                 .max_tokens = 8192 + 8 * 1024,
                                 .max_sequences = 8,
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
  for (const int context : {128, 1024, 3072, 6144})
    if (context < forward->config().context_length) measure_decode(*forward, name, context, nodes, bench, report);
  measure_rows(*forward, name, 1024, bench, report);
}

}  // namespace weft::bench
