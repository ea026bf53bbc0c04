// Prefill and decode of a model file.
#include "weft/model.h"

#include <algorithm>

#include "contestants.h"

namespace contest {
namespace {

using namespace weft;

struct Session {
  WorkerTeam team;
  ForwardPass forward;
  std::vector<ForwardPass::SequenceId> sequences;

  Session(const json& row, int64_t max_tokens, int max_sequences)
      : team(row.at("threads").get<int>()),
        forward(ModelFile(row.at("model").get<std::string>()),
                {.precision = precision_from_string(row.at("precision").get<std::string>()),
                 .max_tokens = max_tokens,
                 .max_sequences = max_sequences,
                 .team = &team}) {}

  std::vector<int32_t> prompt(int64_t length, int64_t sequence) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<int32_t>((i * 7919 + sequence * 101 + 13) % forward.config().vocab_size));
    return tokens;
  }

  // One token of every sequence; each becomes the most probable next one.
  void step(std::vector<int32_t>& tokens) {
    std::vector<ForwardPass::Input> inputs;
    for (size_t s = 0; s < tokens.size(); ++s)
      inputs.push_back({.sequence = sequences[s], .tokens = std::span(tokens).subspan(s, 1)});
    const TensorView logits = forward.run(inputs);
    const int64_t vocab = logits.shape(1);
    for (size_t s = 0; s < tokens.size(); ++s) {
      const float* row = logits.as<float>() + static_cast<int64_t>(s) * vocab;
      tokens[s] = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
    }
  }
};

}  // namespace

Reading weft_model(const json& row) {
  const int64_t prompt = row.at("prompt");
  const int steps = row.value("steps", 0), sequences = row.value("sequences", 1);
  const bool shared = row.value("shared", false);
  constexpr int64_t kPage = 16;  // each sequence ends within a page of its own
  const int64_t max_tokens = shared ? prompt + sequences * (steps + kPage) : sequences * (prompt + steps + kPage);
  const auto session = std::make_shared<Session>(row, max_tokens, sequences);

  if (row.at("kind") == "prefill") {
    session->sequences.push_back(session->forward.add_sequence());
    return [session, tokens = session->prompt(prompt, 0)] {
      session->forward.truncate(session->sequences[0], 0);
      const auto start = Clock::now();
      session->forward.run({{.sequence = session->sequences[0], .tokens = tokens}});
      return seconds_since(start);
    };
  }

  std::vector<int32_t> first;
  for (int s = 0; s < sequences; ++s) {
    if (shared && s > 0) {
      session->sequences.push_back(session->forward.fork(session->sequences[0], prompt));
    } else {
      session->sequences.push_back(session->forward.add_sequence());
      session->forward.run({{.sequence = session->sequences.back(), .tokens = session->prompt(prompt, s)}});
    }
    first.push_back(13 + s);
  }
  return [session, first, prompt, steps] {
    std::vector<int32_t> tokens = first;
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) session->step(tokens);
    const double seconds = seconds_since(start);
    for (const auto sequence : session->sequences) session->forward.truncate(sequence, prompt);
    return seconds;
  };
}

}  // namespace contest
