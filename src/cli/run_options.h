// What `weft run` is asked for, and what it prints of an answer, one or those of a chat.
#pragma once

#include <cstdint>
#include <string>

#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "cli/text_input.h"
#include "decode/conversation.h"
#include "decode/generate.h"
#include "weft/model.h"
#include "weft/ops.h"

namespace weft::cli {

struct RunOptions {
  ModelOptions model;
  TextInput input;
  std::string system;  // "": the template's own, where it has one
  int64_t num_tokens = 512;
  bool raw = false, no_history = false;
  SamplingParams sampling{.temperature = 0.f};
  Penalties penalties;
  uint64_t seed = 0;
  Option temperature, top_k, top_p, min_p, repetition;  // what is not given is the model's
};

// How tokens are drawn: what the options say, else what the model's file or family does, else greedily.
struct Sampling {
  SamplingParams params;
  Penalties penalties;
  std::string source;  // of what the options leave open; "": nothing is known of the model
};
Sampling choose_sampling(const RunOptions& options, const ModelFile& file);
// "temperature 0.2, top-p 0.9 (SmolLM2)".
std::string to_string(const Sampling& sampling);

// Printed as it comes, until Ctrl-C; `room`: tokens of context.
decode::AnswerOptions answer_options(const RunOptions& options, int64_t room, const Context& context);

// Puts a system prompt in front of the messages, of which there is none yet. Throws where the model's chat template
// takes none, or leaves it out.
void add_system(decode::Conversation& conversation, const std::string& system);

struct Prompt {
  int64_t prompt_tokens, computed_tokens;  // of a conversation only what is new is computed
  double load_s;
};
// What ends an answer on stdout.
void print_end(const Context& context, Device device, const decode::Answer& answer, const Prompt& prompt,
               const Sampling& sampling);
// Prompt tokens a second; none where no prompt was read.
std::optional<double> prefill_rate(const decode::Answer& answer, int64_t tokens);

}  // namespace weft::cli
