// Studies of one part of the layers alone: stacks of attention blocks, and of gated feed-forward blocks. Each is a
// model whose layers have no other part, with a few ids, so that embedding and head are next to nothing: the kernels
// are those of whole models.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/cuda/shapes.h"
#include "bench/cuda/studies.h"
#include "bench/random_weights.h"
#include "bench/timing.h"
#include "decode/forward.h"

namespace weft::bench {
namespace {

using decode::LayerParts;
using decode::StepProbe;

constexpr int kVocabulary = 128, kContext = 128;
constexpr int kStackRounds = 9, kStackSteps = 10;  // turns; steps of each

struct StackForm {
  const char* name;
  StepForm form;
  bool holds_back;
};
// Held back: a kernel of the whole stack whose ring waits for each join, as the next kernel of a stream would.
constexpr StackForm kForms[] = {
    {"apart", StepForm::layered, false}, {"fused", StepForm::fused, true}, {"fused + overlap", StepForm::fused, false}};

// Of one token behind the context, the forms in turns with reads of as many bytes.
void measure_stack(const std::string& name, ForwardPass& forward, size_t kv_bytes, CardBench& bench,
                   BenchReport& report) {
  const bool has_fused = StepProbe::choose(forward, StepForm::automatic);
  if (!has_fused) report.note(fmt::format("{}: {}", name, forward.step_form()));
  const auto forms = std::span(kForms).first(has_fused ? std::size(kForms) : 1);
  const auto sequence = forward.add_sequence();
  const std::vector<int32_t> next{11};
  if (kv_bytes > 0) {
    const std::vector<int32_t> prompt(kContext, 7);
    forward.run({{.sequence = sequence, .tokens = prompt}});
  }
  const int64_t before = forward.length(sequence);
  std::vector<double> seconds[std::size(kForms)], rates;
  std::vector<float> fused;
  size_t bytes = 0;
  for (int round = 0; round < kStackRounds; ++round) {
    for (size_t f = 0; f < forms.size(); ++f) {
      StepProbe::choose(forward, forms[f].form);
      StepProbe::hold_back(forward, forms[f].holds_back);
      const TensorView logits = forward.run({{.sequence = sequence, .tokens = next}});
      if (forms[f].form == StepForm::fused) {
        std::vector<float> own(logits.as<float>(), logits.as<float>() + logits.size());
        check(fused.empty() || own == fused, ErrorCode::device_failed, "{}, {}: other bits than before", name,
              forms[f].name);
        fused = std::move(own);
      }
      bytes = forward.weight_bytes() + kv_bytes;
      seconds[f].push_back(StepProbe::replay(forward, kStackSteps));
      forward.truncate(sequence, before);
    }
    rates.push_back(bench.read_rate(std::min(bytes, bench.pool_bytes())));
  }
  forward.release(sequence);
  for (size_t f = 0; f < forms.size(); ++f) {
    const std::string row = fmt::format("{}, {}", name, forms[f].name);
    const double taken = median(seconds[f]);
    report.add({"decode", row, "bandwidth", static_cast<double>(bytes) / taken / 1e9, "GB/s", median(rates) / 1e9});
    report.add({.bench = "decode", .name = row, .metric = "time", .value = taken * 1e3, .unit = "ms"});
  }
}

// One layer alone would stay in the card's cache.
void measure_stacks(LayerParts parts, const char* name, const BenchOptions& options, CardBench& bench,
                    BenchReport& report) {
  const std::string shape = options.quick ? "1b" : "8b";
  for (const int layers : options.quick ? std::vector{2} : std::vector{4, 32}) {
    ModelConfig config = config_of(shape);
    config.num_layers = layers;
    config.vocab_size = kVocabulary;
    config.tied_embeddings = true;
    const ForwardOptions forward_options{.precision = precision_from_string(options.precision),
                                         .device = options.device,
                                         .max_tokens = 2 * kContext,
                                         .max_sequences = 1,
                                         .step = StepForm::automatic};
    ForwardPass forward = make_forward_pass(
        config, random_sources(config, weight_type_from_string(options.weights), parts), forward_options);
    const bool attends = parts == LayerParts::attention;
    measure_stack(fmt::format("{} stack {} {} x {}{}", name, shape, options.weights, layers,
                              attends ? fmt::format(" ctx{}", kContext) : ""),
                  forward, attends ? forward.kv_bytes_per_token() * kContext : 0, bench, report);
  }
}

}  // namespace

void measure_attention_stack(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  measure_stacks(LayerParts::attention, "attention", options, bench, report);
}
void measure_glu_stack(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  measure_stacks(LayerParts::feed_forward, "glu", options, bench, report);
}

}  // namespace weft::bench
