// The forward pass: inputs are checked, given room, and cut into steps of so many rows, which go through the layers
// together (layers.h).
#include "decode/forward.h"

#include <algorithm>
#include <utility>

#include "attention/plan/prefix_forest.h"
#include "base/check.h"
#include "decode/executor.h"
#include "decode/layers.h"
#include "decode/step_attention.h"
#include "ops/draw.h"
#include "weft/model.h"

namespace weft {
namespace {

using decode::Sequences;

constexpr double kShareOfMemory = 0.5;  // of what is left beside the weights

ForwardOptions checked(ForwardOptions options) {
  check(options.max_rows >= 1 && options.max_rows <= 1 << 20, ErrorCode::invalid_argument,
        "max_rows = {}; allowed are 1 to {}", options.max_rows, 1 << 20);
  check(options.step <= StepForm::fused, ErrorCode::invalid_argument,
        "step = {}; allowed are StepForm::automatic, layered and fused", static_cast<int>(options.step));
  check(options.step_ctas >= 0, ErrorCode::invalid_argument,
        "step_ctas = {}; allowed are 1 to the device's multiprocessors, and 0 for one on each", options.step_ctas);
  check(options.step_ctas == 0 || options.step != StepForm::layered, ErrorCode::invalid_argument,
        "step_ctas = {} with layered steps, whose kernels have as many CTAs as each needs; give step fused or auto",
        options.step_ctas);
  return options;
}

int64_t logit_rows_of(const ForwardPass::Input& input) {
  return std::min(input.logit_rows, static_cast<int64_t>(input.tokens.size()));
}

// What is asked of each row that gives logits.
enum class Asked : uint8_t { logits, greedy, drawn };

}  // namespace

struct ForwardPass::Impl {
  ModelConfig config;
  ForwardOptions options;
  Sequences sequences;
  decode::MadeLayers made;
  decode::Layers* layers = made.layers.get();
  decode::Step step;  // until the next one begins
  Workspace logits, ids;

  Impl(const ModelConfig& c, decode::ModelSources from, const ForwardOptions& o)
      : config(c),
        options(checked(o)),
        sequences(config, options, decode::kv_dtype_of(o)),
        made(decode::make_layers(config, std::move(from), options, sequences)) {}

  // The rows that give logits.
  int64_t run(std::span<const Input> inputs, const SharedPrefixes& prefixes, Asked asked,
              std::span<const TokenDraw> draws = {});
  TensorView run(std::span<const Input> inputs, const SharedPrefixes& prefixes);
  std::span<const int32_t> run_greedy(std::span<const Input> inputs, const SharedPrefixes& prefixes);
  std::span<const int32_t> run_sampled(std::span<const Input> inputs, std::span<const TokenDraw> draws,
                                       const SharedPrefixes& prefixes);
  std::span<const float> row_of(size_t row) const {
    const auto vocab = static_cast<size_t>(config.vocab_size);
    return {static_cast<const float*>(logits.data()) + row * vocab, vocab};
  }
  void make_room(Workspace& memory, size_t bytes) const;
  // Where results begin.
  decode::StepOutput output(Asked asked, std::span<const TokenDraw> draws = {}) const {
    auto* const first_id = static_cast<int32_t*>(ids.data());
    if (asked == Asked::greedy) return {.greedy = first_id};
    if (asked == Asked::drawn) return {.drawn = first_id, .draws = draws.data()};
    return {.logits = static_cast<float*>(logits.data())};
  }
  void check_inputs(std::span<const Input> inputs, const SharedPrefixes& prefixes) const;
  void run_step(decode::StepOutput& to);
  void add_rows(const Input& input, int32_t node, int64_t begin, int64_t count, int64_t length);
};

void ForwardPass::Impl::check_inputs(std::span<const Input> inputs, const SharedPrefixes& prefixes) const {
  check(!inputs.empty(), ErrorCode::invalid_argument, "run: no input is given; give at least one sequence");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    check(!input.tokens.empty(), ErrorCode::invalid_argument, "run: inputs[{}] has no tokens; give at least one", i);
    check(input.logit_rows >= 0, ErrorCode::invalid_argument,
          "run: inputs[{}].logit_rows = {}; allowed are 0 and more, kAllRows for all", i, input.logit_rows);
    for (size_t j = 0; j < i; ++j)
      check(inputs[j].sequence != input.sequence, ErrorCode::invalid_argument,
            "run: inputs[{}] and inputs[{}] both name sequence {}; join their tokens", j, i, input.sequence);
    for (size_t t = 0; t < input.tokens.size(); ++t)
      check(input.tokens[t] >= 0 && input.tokens[t] < config.vocab_size, ErrorCode::invalid_token,
            "run: inputs[{}].tokens[{}] = {}; allowed are 0 to {}", i, t, input.tokens[t], config.vocab_size - 1);
    sequences.length(input.sequence);  // throws for one that does not exist
  }
  // Whether or not anybody looks at them: a fused step does not, nor one of a single request.
  if (!prefixes.parent.empty() || !prefixes.num_pages.empty() || !prefixes.node_of_request.empty())
    planner::check_prefixes(prefixes, inputs.size());
}

// Rows [begin, begin + count) of an input whose sequence then holds `length` tokens.
void ForwardPass::Impl::add_rows(const Input& input, int32_t node, int64_t begin, int64_t count, int64_t length) {
  const int64_t first_wanted = static_cast<int64_t>(input.tokens.size()) - logit_rows_of(input);
  for (int64_t i = begin; i < begin + count; ++i) {
    if (i >= first_wanted) step.wanted.push_back(step.rows());
    step.positions.push_back(static_cast<int32_t>(length - count + i - begin));
    step.tokens.push_back(input.tokens[static_cast<size_t>(i)]);
  }
  step.qo_indptr.push_back(static_cast<int32_t>(step.rows()));
  step.pages.add(sequences, input.sequence, length);
  if (step.has_prefixes()) step.node_of_request.push_back(node);
}

void ForwardPass::Impl::run_step(decode::StepOutput& to) {
  layers->run(step, to);
  const auto wanted = static_cast<int64_t>(step.wanted.size());
  if (to.greedy != nullptr)
    to.greedy += wanted;
  else if (to.drawn != nullptr)
    to.drawn += wanted, to.draws += wanted;
  else
    to.logits += wanted * config.vocab_size;
}

// A card writes at full speed into pinned memory alone.
void ForwardPass::Impl::make_room(Workspace& memory, size_t bytes) const {
  if (memory.bytes() >= bytes) return;
  memory = Workspace();
  const bool on_card = options.device.kind == DeviceKind::cuda;
  memory = Workspace(on_card ? Device::cuda_host(options.device.index) : Device::cpu(), bytes);
}

TensorView ForwardPass::Impl::run(std::span<const Input> inputs, const SharedPrefixes& prefixes) {
  const int64_t rows = run(inputs, prefixes, Asked::logits);
  return TensorView(logits.data(), DType::fp32, {rows, config.vocab_size});
}

std::span<const int32_t> ForwardPass::Impl::run_greedy(std::span<const Input> inputs, const SharedPrefixes& prefixes) {
  const bool finds_ids = layers->has_greedy();
  const auto rows = static_cast<size_t>(run(inputs, prefixes, finds_ids ? Asked::greedy : Asked::logits));
  if (!finds_ids) make_room(ids, rows * sizeof(int32_t));
  const std::span<int32_t> found(static_cast<int32_t*>(ids.data()), rows);
  if (!finds_ids)
    for (size_t row = 0; row < rows; ++row) found[row] = ops::first_of_largest(row_of(row));
  return found;
}

std::span<const int32_t> ForwardPass::Impl::run_sampled(std::span<const Input> inputs, std::span<const TokenDraw> draws,
                                                        const SharedPrefixes& prefixes) {
  int64_t rows = 0;
  for (const Input& input : inputs) rows += logit_rows_of(input);
  check(static_cast<size_t>(rows) == draws.size(), ErrorCode::invalid_argument,
        "run_sampled: {} draws for {} rows that give logits; one for each is needed", draws.size(), rows);
  for (const TokenDraw& draw : draws) ops::check_draw("run_sampled", draw, config.vocab_size);
  const bool finds_ids = layers->has_greedy();
  run(inputs, prefixes, finds_ids ? Asked::drawn : Asked::logits, draws);
  if (!finds_ids) make_room(ids, draws.size() * sizeof(int32_t));
  const std::span<int32_t> drawn(static_cast<int32_t*>(ids.data()), draws.size());
  if (!finds_ids)
    ops::draw_rows([&](size_t row) { return row_of(row); }, draws, config.vocab_size, decode::team_of(options), drawn);
  return drawn;
}

int64_t ForwardPass::Impl::run(std::span<const Input> inputs, const SharedPrefixes& prefixes, Asked asked,
                               std::span<const TokenDraw> draws) {
  check_inputs(inputs, prefixes);
  int64_t logit_rows = 0;
  for (const Input& input : inputs) logit_rows += logit_rows_of(input);

  // Takes the appended tokens back unless everything went well.
  struct Rollback {
    Impl& impl;
    std::vector<const Input*> appended = {};
    bool done = false;
    ~Rollback() {
      if (!done)
        for (const Input* input : appended)
          impl.sequences.take_back(input->sequence, static_cast<int64_t>(input->tokens.size()));
    }
  } rollback{*this};
  rollback.appended.reserve(inputs.size());
  for (const Input& input : inputs) {
    sequences.append(input.sequence, static_cast<int64_t>(input.tokens.size()));
    rollback.appended.push_back(&input);
  }

  if (asked == Asked::logits)
    make_room(logits, static_cast<size_t>(logit_rows * config.vocab_size) * sizeof(float));
  else
    make_room(ids, static_cast<size_t>(logit_rows) * sizeof(int32_t));
  decode::StepOutput to = output(asked, draws);
  step.clear();
  step.prefix_parents.assign(prefixes.parent.begin(), prefixes.parent.end());
  step.prefix_pages.assign(prefixes.num_pages.begin(), prefixes.num_pages.end());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    const auto total = static_cast<int64_t>(input.tokens.size());
    const int64_t before = sequences.length(input.sequence) - total;
    for (int64_t begin = 0; begin < total;) {
      if (step.rows() > 0 && (step.rows() == options.max_rows || step.invariant != input.invariant)) {
        run_step(to);
        step.clear();
      }
      step.invariant = input.invariant;
      const int64_t count = std::min(total - begin, options.max_rows - step.rows());
      add_rows(input, step.has_prefixes() ? prefixes.node_of_request[i] : -1, begin, count, before + begin + count);
      begin += count;
    }
  }
  if (step.rows() > 0) run_step(to);
  rollback.done = true;
  return logit_rows;
}

ForwardPass::ForwardPass(const ModelFile& file, const ForwardOptions& options)
    : impl_(std::make_unique<Impl>(file.config(), decode::read_sources(file), options)) {}
ForwardPass::ForwardPass(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ForwardPass make_forward_pass(const ModelConfig& config, decode::ModelSources sources, const ForwardOptions& options) {
  return ForwardPass(std::make_unique<ForwardPass::Impl>(config, std::move(sources), options));
}
const decode::StepSeconds& decode::StepProbe::last(const ForwardPass& forward) {
  return forward.impl().layers->seconds();
}
double decode::StepProbe::replay(ForwardPass& forward, int count) {
  const ForwardPass::Impl& impl = forward.impl();
  return impl.layers->replay(impl.step, impl.output(Asked::logits), count);
}
std::string decode::StepProbe::trace(ForwardPass& forward) {
  const ForwardPass::Impl& impl = forward.impl();
  return impl.layers->trace(impl.step, impl.output(Asked::logits));
}
int64_t decode::StepProbe::most_rows(const ForwardPass& forward, StepForm form) {
  return forward.impl().layers->most_rows(form);
}
bool decode::StepProbe::choose(ForwardPass& forward, StepForm form) { return forward.impl().layers->choose(form); }
void decode::StepProbe::hold_back(ForwardPass& forward, bool holds) { forward.impl().layers->hold_back(holds); }
ForwardPass::~ForwardPass() = default;
ForwardPass::ForwardPass(ForwardPass&&) noexcept = default;
ForwardPass& ForwardPass::operator=(ForwardPass&&) noexcept = default;

ForwardPass::Impl& ForwardPass::impl() const { return held(impl_, "forward pass", "ForwardPass(file, options)"); }

const ModelConfig& ForwardPass::config() const { return impl().config; }
ForwardPass::SequenceId ForwardPass::add_sequence() { return impl().sequences.add(); }
ForwardPass::SequenceId ForwardPass::add_sequence(std::span<const int32_t> pages) {
  return impl().sequences.add(pages);
}
ForwardPass::SequenceId ForwardPass::fork(SequenceId sequence, int64_t tokens) {
  return impl().sequences.fork(sequence, tokens);
}
void ForwardPass::truncate(SequenceId sequence, int64_t tokens) { impl().sequences.truncate(sequence, tokens); }
void ForwardPass::release(SequenceId sequence) { impl().sequences.release(sequence); }
int64_t ForwardPass::length(SequenceId sequence) const { return impl().sequences.length(sequence); }
std::span<const int32_t> ForwardPass::pages(SequenceId sequence) const { return impl().sequences.pages(sequence); }
void ForwardPass::hold_pages(std::span<const int32_t> pages) { impl().sequences.hold(pages); }
void ForwardPass::unhold_pages(std::span<const int32_t> pages) { impl().sequences.unhold(pages); }
int ForwardPass::page_size() const { return impl().sequences.page_size(); }
int64_t ForwardPass::num_pages() const { return impl().sequences.num_pages(); }
int64_t ForwardPass::num_free_pages() const { return impl().sequences.num_free_pages(); }
bool ForwardPass::prefault() { return impl().sequences.prefault(); }
TensorView ForwardPass::run(std::span<const Input> inputs, const SharedPrefixes& prefixes) {
  return impl().run(inputs, prefixes);
}
TensorView ForwardPass::run(std::initializer_list<Input> inputs) {
  return impl().run(std::span<const Input>(inputs.begin(), inputs.size()), {});
}
std::span<const int32_t> ForwardPass::run_greedy(std::span<const Input> inputs, const SharedPrefixes& prefixes) {
  return impl().run_greedy(inputs, prefixes);
}
std::span<const int32_t> ForwardPass::run_greedy(std::initializer_list<Input> inputs) {
  return impl().run_greedy(std::span<const Input>(inputs.begin(), inputs.size()), {});
}
std::span<const int32_t> ForwardPass::run_sampled(std::span<const Input> inputs, std::span<const TokenDraw> draws,
                                                  const SharedPrefixes& prefixes) {
  return impl().run_sampled(inputs, draws, prefixes);
}
bool ForwardPass::finds_ids() const { return impl().layers->has_greedy(); }
const std::string& ForwardPass::step_form() const { return impl().made.form; }
size_t ForwardPass::weight_bytes() const { return impl().layers->weight_bytes(); }
int64_t decode::tokens_that_fit(uint64_t memory, const ModelFile& file, const ForwardOptions& options) {
  const ModelConfig& config = file.config();
  const DType dtype = kv_dtype_of(options);
  const size_t head = static_cast<size_t>(config.head_dim * bits_of(dtype)) / 8 +
                      (kv_scales_of(dtype) == KvScales::none ? 0 : sizeof(float));
  const size_t token = 2 * static_cast<size_t>(config.num_layers * config.num_kv_heads) * head;
  const uint64_t weights = file.file_bytes() + file.file_bytes() / 4;  // packed, with room for the buffers of a step
  const double left = memory > weights ? static_cast<double>(memory - weights) : 0;
  return static_cast<int64_t>(left * kShareOfMemory / static_cast<double>(token));
}

size_t ForwardPass::kv_bytes_per_token() const { return impl().sequences.bytes_per_token(); }

}  // namespace weft
