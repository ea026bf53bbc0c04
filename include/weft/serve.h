// An engine that answers many requests at once over one paged cache: continuous batching, without HTTP.
//
//   weft::ModelFile file("model.gguf");
//   weft::Tokenizer tokenizer(file);
//   weft::serve::Engine engine(file, tokenizer, {.target_itl_s = 0.12});
//   engine.submit({.prompt = tokenizer.encode("Once"), .max_tokens = 64},
//                 [](const weft::serve::Update& u) { print(u.text); });
//   while (engine.step()) {}                       // or engine.run() in a thread of its own
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/model.h"
#include "weft/ops.h"

namespace weft::serve {

using RequestId = uint64_t;

// What is asked of the model. The same request with the same seed draws the same tokens whatever else runs, as far as
// the logits are the same; `reproducible` makes them so.
struct Request {
  std::vector<int32_t> prompt;   // token ids, at least one
  int64_t max_tokens = -1;       // of each choice; -1: what the context holds; 0: the prompt is computed, no more
  int64_t min_tokens = 0;        // no end before so many
  bool ignore_eos = false;       // tokens that end an answer are tokens like others
  bool special_text = false;     // control tokens within an answer show as their names; else they show nothing
  int n = 1;                     // choices, 1 to 64: they share the prompt
  SamplingParams sampling = {};  //
  Penalties penalties = {};      //
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<std::string> stop = {};  // an answer ends before the first of these texts, wherever tokens end
  uint64_t seed = 0;                   // choice i draws by Philox{seed, i * 2^40} (weft/ops.h)
  int logprobs = -1;                   // of each token, and of so many of the most probable ones; -1: none
  bool prompt_logprobs = false;        // of the prompt's tokens, too; needs logprobs
  int priority = 0;                    // -100 to 100; a key's higher ones first, gaining one every ten seconds
  std::string key = {};                // whose it is: keys take turns, whatever the priority; no shared prefix
  bool reproducible = false;           // same bits alone or in any batch, at a cost
  // It fails that has waited ("queue_timed_out"), or is there ("timed_out"), for longer; 0: never.
  double max_queue_s = 0, max_total_s = 0;
};

struct TokenLogprob {
  int32_t id;
  double logprob;                               // of the model itself: before bias, penalties and temperature
  std::vector<std::pair<int32_t, double>> top;  // most probable first
};

// One token of one choice, or its end. Text is whole UTF-8 characters; what may begin a stop text is held back.
struct Update {
  RequestId request = 0;
  int choice = 0;
  int32_t id = -1;                           // -1: no token, only what was held back, or an end
  std::string text = {};                     //
  int64_t text_offset = 0;                   // of a token: characters of the answer before the one it begins in
  std::optional<TokenLogprob> logprob = {};  //
  std::vector<TokenLogprob> prompt = {};     // with each choice's first: the prompt's tokens from the second on
  std::string finish = {};                   // "stop", "length", "cancelled", "error"; empty: the choice goes on
  std::string error_code = {}, error = {};   // with finish "error"
  bool last = false;                         // nothing follows for the request
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // with `last`: of the request, all choices
};
// Called by the thread that steps; it must neither block nor throw.
using OnUpdate = std::function<void(const Update&)>;

struct EngineOptions {
  ForwardOptions forward = {};  // max_tokens and max_sequences are the engine's own to set
  int64_t kv_tokens = 0;        // of the page pool; 0: half of what the device has left, at least one context
  int max_running = 64;         // choices that decode at once, 1 to 512
  int64_t max_step_rows = 512;  // rows of a step, at least max_running
  double target_itl_s = 0.12;   // gap between tokens that prefill keeps to while others decode
  int64_t max_queued = 256;     // requests that wait
  int64_t max_queued_tokens = 1 << 20;
  int64_t context = 0;  // of a sequence; 0: the model's own
};

// Seconds, in buckets whose upper ends grow by 2 from 1 ms; the last one takes all above.
struct Histogram {
  static constexpr int kBuckets = 18;
  std::vector<uint64_t> counts = std::vector<uint64_t>(kBuckets, 0);
  uint64_t count = 0;
  double sum = 0;
  static double upper_end(int bucket) { return 0.001 * static_cast<double>(uint64_t{1} << bucket); }
  void add(double seconds);
};

// What runs in an engine, without a word of what was said.
struct RunningRequest {
  RequestId id;
  bool running;
  int64_t prompt_tokens, computed_tokens, output_tokens;
  int choices;
  double age_s;
};
struct CachedPrefix {
  int depth;
  int64_t tokens;  // of this node
  int users;       // running requests below it
};
struct EngineStats {
  int64_t requests_running = 0, requests_waiting = 0, tokens_waiting = 0;
  int64_t pages = 0, pages_free = 0, pages_cached = 0, pages_evictable = 0;
  uint64_t steps = 0, prompt_tokens = 0, prompt_tokens_computed = 0, output_tokens = 0;
  uint64_t requests_finished = 0, requests_cancelled = 0, requests_failed = 0, requests_refused = 0, preemptions = 0;
  Histogram time_to_first_token, token_gap, queue, step;
};
struct EngineView {
  std::vector<RunningRequest> requests;
  std::vector<CachedPrefix> prefixes;  // the prefix tree, parents first
  std::vector<double> step_s;          // of the last steps
};

// submit, cancel, pause, stats and view may be called from any thread; step and run from one at a time.
class Engine {
 public:
  // Loads the model. `tokenizer` has to outlive the engine.
  // Throws Error(invalid_argument | unsupported | out_of_memory | invalid_file).
  Engine(const ModelFile& file, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Throws Error(invalid_argument | invalid_token | context_full | unsupported) for a request that can never run, and
  // Error(queue_full) for one that has to come again later.
  RequestId submit(Request request, OnUpdate on_update);
  void check_queue() const;  // throws Error(queue_full) where submit would, whatever the request
  // Reserves a place in the queue for a request of about `tokens` tokens whose body is not read yet. Throws
  // Error(queue_full), counted as refused. Drop the handle before submit() and before the engine is destroyed.
  std::shared_ptr<void> enter_queue(int64_t tokens);
  void cancel(RequestId request);              // unknown ones are over already
  void pause(RequestId request, bool paused);  // a paused request keeps its pages and makes no tokens

  // One step: schedule, run, postprocess. False where there is nothing to do.
  bool step();
  // Steps until stop(), sleeping where there is nothing to do.
  void run();
  void stop();

  int64_t context() const;
  const std::string& step_form() const;  // how the model's steps run, in words: ForwardPass::step_form
  EngineStats stats() const;
  EngineView view() const;

 private:
  struct Impl;
  Impl& impl() const;
  explicit Engine(std::unique_ptr<Impl> impl);
  friend class EngineMaker;  // serve/engine.h: over any model
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::serve
