#include "serve/forward_runner.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "decode/forward.h"
#include "device/memory.h"
#include "serve/scheduler.h"

namespace weft::serve {
namespace {

class ForwardRunner : public ModelRunner {
 public:
  ForwardRunner(const ModelFile& file, const ForwardOptions& options, const Limits& limits)
      : forward_(file, options), limits_(limits) {
    limits_.num_pages = forward_.num_pages();
    limits_.step_form = forward_.step_form();
  }

  Limits limits() const override { return limits_; }
  int64_t num_free_pages() const override { return forward_.num_free_pages(); }
  Sequence add(std::span<const int32_t> pages) override {
    return pages.empty() ? forward_.add_sequence() : forward_.add_sequence(pages);
  }
  Sequence fork(Sequence sequence, int64_t tokens) override { return forward_.fork(sequence, tokens); }
  void release(Sequence sequence) override { forward_.release(sequence); }
  std::span<const int32_t> pages(Sequence sequence) const override { return forward_.pages(sequence); }
  void hold(std::span<const int32_t> pages) override { forward_.hold_pages(pages); }
  void unhold(std::span<const int32_t> pages) override { forward_.unhold_pages(pages); }

  bool use_idle_time() override { return forward_.prefault(); }

  std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    take(pieces);
    const TensorView logits = forward_.run(inputs_, prefixes);
    return {logits.as<float>(), static_cast<size_t>(logits.shape(0) * logits.shape(1))};
  }
  bool finds_ids() const override { return forward_.finds_ids(); }
  std::span<const int32_t> run_greedy(std::span<const Piece> pieces, const SharedPrefixes& prefixes) override {
    take(pieces);
    return forward_.run_greedy(inputs_, prefixes);
  }
  std::span<const int32_t> run_sampled(std::span<const Piece> pieces, std::span<const TokenDraw> draws,
                                       const SharedPrefixes& prefixes) override {
    take(pieces);
    return forward_.run_sampled(inputs_, draws, prefixes);
  }

 private:
  void take(std::span<const Piece> pieces) {
    inputs_.clear();
    for (const Piece& piece : pieces)
      inputs_.push_back({piece.sequence, piece.tokens, piece.logit_rows, piece.reproducible});
  }

  ForwardPass forward_;
  Limits limits_;
  std::vector<ForwardPass::Input> inputs_;
};

}  // namespace

std::unique_ptr<ModelRunner> make_forward_runner(const ModelFile& file, const EngineOptions& options) {
  const ModelConfig& config = file.config();
  check(options.context >= 0 && options.context <= config.context_length, ErrorCode::invalid_argument,
        "context = {}; allowed are 0 to {}, the model's own", options.context, config.context_length);
  ForwardOptions forward = options.forward;
  ModelRunner::Limits limits;
  limits.page_size = forward.page_size;
  limits.context = options.context > 0 ? options.context : config.context_length;
  limits.vocab_size = config.vocab_size;
  // A fused step has other bits on another number of multiprocessors.
  limits.reproducible = Scheduler::kReproducibleCut % forward.page_size == 0 && forward.step != StepForm::fused;
  int64_t tokens = options.kv_tokens;
  if (tokens == 0) {
    const std::optional<uint64_t> memory = device::available_memory(forward.device);
    check(memory.has_value(), ErrorCode::invalid_argument,
          "kv_tokens = 0 on {}; how much memory it has left is not known there: say how many tokens",
          to_string(forward.device));
    tokens = std::clamp(decode::tokens_that_fit(*memory, file, forward), limits.context,
                        limits.context * options.max_running);
  }
  check(tokens >= limits.context, ErrorCode::invalid_argument, "kv_tokens = {}; allowed are {}, one context, and more",
        tokens, limits.context);
  forward.max_tokens = tokens;
  forward.max_sequences = options.max_running;
  forward.max_rows = options.max_step_rows;
  return std::make_unique<ForwardRunner>(file, forward, limits);
}

}  // namespace weft::serve
