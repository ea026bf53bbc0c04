#include "decode/fused/cuda/fused_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "decode/executor.h"
#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/fused/cuda/phase_times.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "ops/cuda/draw.h"

namespace weft::decode::fused {
namespace {

class FusedLayers : public Layers {
 public:
  FusedLayers(const ModelConfig& config, std::shared_ptr<const CardWeights> weights, const ModelSources& sources,
              Partition partition, const ForwardOptions& options, const Sequences& sequences)
      : config_(config),
        card_(cuda::Card::at(options.device.index)),
        own_stream_(cuda::make_stream(card_)),
        stream_(Stream::cuda(own_stream_.get(), card_.index())),
        model_(config, std::move(weights), sources, std::move(partition), options, sequences, stream_) {
    // Who asks for the fused step by name gets its kernels, and what they throw, with the first step that needs each.
    if (options.step == StepForm::automatic) model_.load_all();
  }

  void run(const Step& step, const StepOutput& output) override {
    check(
        !step.invariant, ErrorCode::unsupported,
        "the fused step: required the same bits on any number of workers (invariant); supported are the same beside "
        "any other rows of the step, on as many multiprocessors; missing: a partition of as many on every card; run it "
        "by layers");
    attention::Trace* const trace = attention::Trace::instance();
    seconds_ = {};
    seconds_.plan = seconds_of([&] { model_.plan(step); });
    seconds_.upload = seconds_of([&] { model_.upload(step); });
    if (trace != nullptr) model_.start_trace();
    seconds_.enqueue = seconds_of([&] { enqueue_all(step, output); });
    seconds_.wait = seconds_of([&] { wait(); });
    if (trace == nullptr) return;
    const double end_us = trace->now_us();
    trace->add(phase_spans(model_.phases(), model_.num_workers(), model_.read_trace(),
                           attention::Trace::kFirstProcess + card_.index(), end_us));
  }

  int64_t most_rows(StepForm form) const override { return form == StepForm::layered ? 0 : model_.most_rows(); }
  bool has_greedy() const override { return true; }
  void hold_back(bool holds) override { model_.hold_back(holds); }

  double replay(const Step& step, const StepOutput& output, int count) override {
    return seconds_of([&] {
             for (int i = 0; i < count; ++i) enqueue(step, output);
             wait();
           }) /
           count;
  }

  std::string trace(const Step& step, const StepOutput& output) override {
    model_.start_trace();
    enqueue(step, output);
    wait();
    const std::vector<uint64_t> stamps = model_.read_trace();
    return to_string(phase_times(model_.phases(), model_.num_workers(), stamps), clock_step(stamps));
  }

  size_t weight_bytes() const override { return model_.weight_bytes(); }
  const StepSeconds& seconds() const override { return seconds_; }

 private:
  // Whole, or nothing of it runs any more: whoever catches may run the step by layers, in a stream of theirs.
  void enqueue_all(const Step& step, const StepOutput& output) {
    try {
      enqueue(step, output);
    } catch (const Error&) {
      cuda::synchronize(card_, own_stream_.get());
      throw;
    }
  }
  void enqueue(const Step& step, const StepOutput& output) {
    const bool is_greedy = output.greedy != nullptr;
    model_.launch(step, is_greedy);
    if (is_greedy) return copy_wanted(step, model_.ids(), output.greedy, 1);
    if (output.drawn != nullptr) return draw(step, output);
    copy_wanted(step, model_.logits(), output.logits, config_.vocab_size);
  }

  void draw(const Step& step, const StepOutput& output) {
    const size_t wanted = step.wanted.size();
    if (wanted == 0) return;
    const int* const ids = draws_.run({model_.logits(), config_.vocab_size, config_.vocab_size}, step.wanted,
                                      {output.draws, wanted}, stream_);
    cuda::copy_to_host(card_, output.drawn, ids, wanted * sizeof(int32_t), own_stream_.get());
  }

  // Rows that are wanted and follow each other are one copy.
  template <class T>
  void copy_wanted(const Step& step, const T* from, T* to, int64_t of_row) {
    for (size_t i = 0, end = 0; i < step.wanted.size(); i = end) {
      for (end = i + 1; end < step.wanted.size() && step.wanted[end] == step.wanted[end - 1] + 1; ++end) continue;
      cuda::copy_to_host(card_, to + static_cast<int64_t>(i) * of_row, from + step.wanted[i] * of_row,
                         (end - i) * static_cast<size_t>(of_row) * sizeof(T), own_stream_.get());
    }
  }

  void wait() {
    cuda::synchronize(card_, own_stream_.get());
    model_.check_stuck();
  }

  const ModelConfig& config_;
  cuda::Card& card_;
  cuda::OwnedStream own_stream_;
  Stream stream_;
  ModelKernel model_;
  ops::CardDraws draws_{stream_.device()};
  StepSeconds seconds_;
};

}  // namespace

std::string layered_after(const Error& error) {
  const std::string text = error.what();
  return "layered: " + text.substr(text.find(": ") + 2);  // behind the code
}

StepChoice choose_step(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options) {
  if (options.step == StepForm::layered) return {.partition = {}, .layered = std::string(kLayeredAsAsked)};
  try {
    return {.partition = check_fused(config, sources, options), .layered = ""};
  } catch (const Error& error) {
    // A mistake is no reason for another form.
    if (options.step == StepForm::fused || error.code() == ErrorCode::invalid_argument) throw;
    return {.partition = {}, .layered = layered_after(error)};
  }
}

std::unique_ptr<Layers> make_fused_layers(const ModelConfig& config, std::shared_ptr<const CardWeights> weights,
                                          const ModelSources& sources, Partition partition,
                                          const ForwardOptions& options, const Sequences& sequences) {
  return std::make_unique<FusedLayers>(config, std::move(weights), sources, std::move(partition), options, sequences);
}

}  // namespace weft::decode::fused
