// A request while the engine has it: its choices, what the model holds of them, and what it waits for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/answer_text.h"
#include "serve/prefix_cache.h"
#include "weft/ops.h"
#include "weft/serve.h"

namespace weft::serve {

inline constexpr ModelRunner::Sequence kNoSequence = -1;

// One answer. Prefill, decode and recomputing are the same: tokens beyond `computed` have to go through the model.
struct Choice {
  int index = 0;
  ModelRunner::Sequence sequence = kNoSequence;
  int64_t computed = 0;  // tokens that the sequence holds
  Philox random;
  AnswerText text;
  std::vector<int32_t> output = {};  // drawn; the last one is not computed yet
  bool done = false;
  Clock::time_point last_token = {};
};

struct RequestState {
  RequestId id = 0;  // in order of arrival
  Request request;
  OnUpdate on_update;
  std::vector<Choice> choices;
  bool running = false, paused = false, cancelled = false;
  int64_t max_tokens = 0;   // of a choice, within the context
  int64_t reused = 0;       // tokens of the prompt that were not computed, when it began
  bool began = false;       // was admitted once
  bool counted = false;     // how long it had waited, by then
  PrefixCache::Match held;  // its prompt's locked part of the prefix cache
  std::vector<TokenLogprob> prompt_logprobs;
  Clock::time_point arrived;

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t length(const Choice& choice) const { return prompt_size() + static_cast<int64_t>(choice.output.size()); }
  int64_t to_compute(const Choice& choice) const { return length(choice) - choice.computed; }
  // Tokens [begin, begin + count) of prompt and output.
  std::vector<int32_t> tokens(const Choice& choice, int64_t begin, int64_t count) const;
  // The first choice that goes on: it computes the prompt, from which the others fork.
  Choice* trunk();
  bool done() const;
  // Pages that it and its choices need for all of their tokens.
  int64_t most_pages(int page_size) const;
  // Until the first tokens of its choices are drawn, which is in one step. One may end its choice.
  bool wants_prompt_logits() const { return request.prompt_logprobs && choices[0].output.empty() && !choices[0].done; }
};

using States = std::vector<std::unique_ptr<RequestState>>;

}  // namespace weft::serve
