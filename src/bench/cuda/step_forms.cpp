#include "bench/cuda/step_forms.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench/stop.h"
#include "bench/timing.h"
#include "decode/forward.h"
#include "weft/error.h"

namespace weft::bench {
namespace {

using decode::StepProbe;

constexpr int kTurns = 9, kStepsOfTurn = 5;  // turns; steps of each

struct FormTimes {
  std::vector<double> logits_s = {}, ids_s = {};  // of a step that ends with logits on the host; with ids
  double alone_s = 0;                             // one row's, without its keys and values
};

class StepForms {
 public:
  StepForms(std::string name, ForwardPass& forward, std::span<const StepForm> forms, const StepFormsRun& run,
            BenchReport& report)
      : name_(std::move(name)), forward_(forward), forms_(forms), run_(run), report_(report), times_(forms.size()) {}

  // Steps of one row behind each context, then of several rows, each of a request with the same context.
  void measure() {
    const auto sequence = forward_.add_sequence();
    for (const int context : run_.quick ? std::vector{128} : std::vector{128, 1024, 3072, 6144}) {
      if (context >= forward_.config().context_length) break;
      extend(sequence, context);
      const double rate = time({{sequence}}, context);
      add_speed(context, rate);
    }
    forward_.release(sequence);
    const int context = run_.quick ? 128 : 1024;
    if (context >= forward_.config().context_length) return;
    std::vector<ForwardPass::SequenceId> sequences;
    for (const size_t rows : run_.quick ? std::vector<size_t>{1, 2} : std::vector<size_t>{1, 2, 4, 8}) {
      if (!has_any(rows)) break;
      while (sequences.size() < rows) {
        sequences.push_back(forward_.add_sequence());
        extend(sequences.back(), context);
      }
      const double rate = time(sequences, context);
      add_rows(rows, context, rate);
    }
    for (const auto each : sequences) forward_.release(each);
  }

 private:
  // Whether the form has steps of so many rows: more would go through in several, or in the other form.
  bool has(size_t form, size_t rows) const {
    return static_cast<int64_t>(rows) <= StepProbe::most_rows(forward_, forms_[form]);
  }
  // Says which forms end with fewer.
  bool has_any(size_t rows) {
    bool any = false;
    for (size_t f = 0; f < forms_.size(); ++f) {
      any = any || has(f, rows);
      if (!has(f, rows) && has(f, rows / 2))
        report_.note(fmt::format("{}, {}: no steps of {} rows and more; {}", name_, to_string(forms_[f]), rows,
                                 forward_.step_form()));
    }
    return any;
  }
  void extend(ForwardPass::SequenceId sequence, int context) {
    const std::vector<int32_t> tokens(static_cast<size_t>(context - forward_.length(sequence)), 7);
    forward_.run({{.sequence = sequence, .tokens = tokens, .logit_rows = 0}});
  }

  // Fills in times_ and gives the rate of reads between.
  double time(std::span<const ForwardPass::SequenceId> sequences, int context) {
    const std::vector<int32_t> next{11};
    std::vector<ForwardPass::Input> inputs;
    for (const auto sequence : sequences) inputs.push_back({.sequence = sequence, .tokens = next});
    for (FormTimes& times : times_) times.logits_s.clear(), times.ids_s.clear();
    const auto step = [&](std::vector<double>& seconds, const auto& run) {
      for (int i = 0; i <= kStepsOfTurn; ++i) {  // the first is of another form's caches
        const double taken = seconds_of(run);
        if (i > 0) seconds.push_back(taken);
        for (const auto sequence : sequences) forward_.truncate(sequence, context);
      }
    };
    std::vector<double> rates;
    for (int round = 0; round < kTurns; ++round) {
      for (size_t f = 0; f < forms_.size(); ++f) {
        if (!has(f, sequences.size())) continue;
        stop_if_asked();
        StepProbe::choose(forward_, forms_[f]);
        step(times_[f].logits_s, [&] { forward_.run(inputs); });
        step(times_[f].ids_s, [&] { forward_.run_greedy(inputs); });
      }
      rates.push_back(run_.read_rate(forward_.weight_bytes()));
    }
    return median(rates);
  }

  double kv_bytes(int context) const {
    return static_cast<double>(forward_.kv_bytes_per_token()) * static_cast<double>(context);
  }
  std::string row_of(size_t rows, int context, size_t form) const {
    return fmt::format("{} decode batch{} ctx{}, {}", name_, rows, context, to_string(forms_[form]));
  }

  void add_speed(int context, double rate) {
    const double bound = rate / (static_cast<double>(forward_.weight_bytes()) + kv_bytes(context));
    for (size_t f = 0; f < forms_.size(); ++f) {
      const std::string row = row_of(1, context, f);
      report_.add({"model", row, "speed", 1 / median(times_[f].logits_s), "tok/s", bound});
      report_.add({"model", row, "speed, ids alone", 1 / median(times_[f].ids_s), "tok/s", bound});
    }
  }
  void add_rows(size_t rows, int context, double rate) {
    const double kv_s = kv_bytes(context) / rate;
    for (size_t f = 0; f < forms_.size(); ++f) {
      if (!has(f, rows)) continue;
      const double taken = median(times_[f].logits_s), own_s = taken - static_cast<double>(rows) * kv_s;
      if (rows == 1) {
        times_[f].alone_s = own_s;
        continue;
      }
      const std::string row = row_of(rows, context, f);
      report_.add({"model", row, "step", taken * 1e6, "us"});
      report_.add({"model", row, "without keys and values, by one row's", own_s / times_[f].alone_s, "x"});
    }
  }

  const std::string name_;
  ForwardPass& forward_;
  const std::span<const StepForm> forms_;
  const StepFormsRun& run_;
  BenchReport& report_;
  std::vector<FormTimes> times_;  // of forms_
};

}  // namespace

void measure_step_forms(const std::string& name, const StepFormsRun& run, BenchReport& report) {
  constexpr StepForm kForms[] = {StepForm::layered, StepForm::fused};
  {
    ForwardPass both = run.make(StepForm::automatic);
    if (StepProbe::choose(both, StepForm::automatic)) return StepForms(name, both, kForms, run, report).measure();
    report.note(fmt::format("{}: one form after the other: {}", name, both.step_form()));
    StepForms(name, both, std::span(kForms).first(1), run, report).measure();
  }
  std::optional<ForwardPass> fused;
  try {
    fused.emplace(run.make(StepForm::fused));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::out_of_memory) throw;
    return report.note(fmt::format("{}: no fused steps: {}", name, error.what()));
  }
  StepForms(name, *fused, std::span(kForms).last(1), run, report).measure();
}

}  // namespace weft::bench
