// What the engine says, as the bodies and events that OpenAI's clients read.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serve/http/api_request.h"

namespace weft::serve::http {

// Of one API request. Choices are counted through all prompts: prompt i has i * n to i * n + n - 1. Where more are made
// than answered, the best ones are: those whose tokens have the highest mean log-probability.
class ApiAnswer {
 public:
  ApiAnswer(const ApiRequest& api, const Tokenizer& tokenizer, const std::string& model_name);

  // Takes an update of prompt `index`. Streaming, it returns the events to send, without "data: "; else none.
  std::vector<std::string> add(size_t index, const Update& update);
  // The end of a stream, or the whole answer.
  std::vector<std::string> last_events() const;
  std::string body() const;

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }
  int64_t output_tokens() const { return output_tokens_; }

 private:
  struct Choice {
    std::string text, finish;
    nlohmann::json logprobs;  // so far
    bool begun = false;
    double logprob_sum = 0;  // of its tokens
    int64_t logprobs_summed = 0;
  };
  std::vector<size_t> answered() const;
  nlohmann::json envelope() const;
  nlohmann::json usage() const;
  std::string event_of(size_t number, const std::string& text, bool first, const std::string& finish,
                       const nlohmann::json& logprobs) const;
  // A prompt in front of its answers.
  struct Echo {
    std::string text;
    int64_t characters;            // of the text
    int32_t first_id;              // the token of which nothing says how probable it is
    std::vector<int64_t> offsets;  // of its tokens
  };
  Echo echo_of(const std::string& text, const std::vector<int32_t>& ids) const;
  nlohmann::json token_logprob(const TokenLogprob& token) const;
  nlohmann::json top_logprobs(const TokenLogprob& token) const;
  // `offset`: of the token's first character, in Unicode code points of the text.
  void add_logprob(nlohmann::json& to, const TokenLogprob& token, int64_t offset) const;
  std::string name_of(int32_t id) const;
  nlohmann::json empty_logprobs() const;

  bool chat_, stream_, usage_wanted_, logprobs_;
  const Tokenizer& tokenizer_;
  std::string model_, id_;
  std::string event_end_;  // what all events of the answer have behind their choice
  int64_t created_;
  std::vector<Echo> echoes_;  // one for each prompt, or none
  std::vector<Choice> choices_;
  int n_, answered_;  // choices of a prompt: made, and answered
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, output_tokens_ = 0;
};

}  // namespace weft::serve::http
