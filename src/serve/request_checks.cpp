#include "serve/request_checks.h"

#include <cmath>

namespace weft::serve {
namespace {

void check_range(const char* field, double value, double least, double most) {
  check_field(value >= least && value <= most, field, ErrorCode::invalid_argument, "{} = {}; allowed are {} to {}",
              field, value, least, most);
}

void check_sampling(const SamplingParams& sampling, const Penalties& penalties) {
  check_range("temperature", static_cast<double>(sampling.temperature), 0, 100);
  check_field(sampling.top_k >= 0, "top_k", ErrorCode::invalid_argument, "top_k = {}; allowed are 0 (off) and more",
              sampling.top_k);
  check_field(sampling.top_p > 0.f && sampling.top_p <= 1.f, "top_p", ErrorCode::invalid_argument,
              "top_p = {}; allowed are numbers above 0 up to 1 (off)", sampling.top_p);
  check_range("min_p", static_cast<double>(sampling.min_p), 0, 1);
  check_field(penalties.repetition > 0.f && penalties.repetition <= 100.f, "repetition_penalty",
              ErrorCode::invalid_argument, "repetition_penalty = {}; allowed are numbers above 0 up to 100, 1 is off",
              penalties.repetition);
  check_range("presence_penalty", static_cast<double>(penalties.presence), -100, 100);
  check_range("frequency_penalty", static_cast<double>(penalties.frequency), -100, 100);
}

void check_tokens(const Request& request, int vocab_size) {
  for (size_t i = 0; i < request.prompt.size(); ++i)
    check_field(request.prompt[i] >= 0 && request.prompt[i] < vocab_size, "prompt", ErrorCode::invalid_token,
                "prompt[{}] = {}; token ids are 0 to {}", i, request.prompt[i], vocab_size - 1);
  check_field(request.logit_bias.size() <= kMostBiases, "logit_bias", ErrorCode::invalid_argument,
              "logit_bias has {} entries; allowed are up to {}", request.logit_bias.size(), kMostBiases);
  for (const auto& [id, bias] : request.logit_bias) {
    check_field(id >= 0 && id < vocab_size, "logit_bias", ErrorCode::invalid_token,
                "logit_bias names token {}; token ids are 0 to {}", id, vocab_size - 1);
    check_range("logit_bias", static_cast<double>(bias), -100, 100);
  }
}

void check_lengths(const Request& request, const ModelRunner::Limits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  check_field(prompt > 0, "prompt", ErrorCode::invalid_argument, "prompt: has no tokens; give at least one");
  check_limit(prompt < limits.context, "prompt", Limit::max_prompt_tokens, ErrorCode::context_full,
              "prompt: has {} tokens; the context holds {}, one of them for the answer: shorten it", prompt,
              limits.context);
  check_field(request.max_tokens >= -1 && request.max_tokens != 0, "max_tokens", ErrorCode::invalid_argument,
              "max_tokens = {}; allowed are 1 and more", request.max_tokens);
  check_field(request.max_tokens <= limits.context - prompt, "max_tokens", ErrorCode::context_full,
              "max_tokens = {} after a prompt of {} tokens; the context holds {}: ask for at most {}",
              request.max_tokens, prompt, limits.context, limits.context - prompt);
  const int64_t most = request.max_tokens > 0 ? request.max_tokens : limits.context - prompt;
  check_field(request.min_tokens >= 0 && request.min_tokens <= most, "min_tokens", ErrorCode::invalid_argument,
              "min_tokens = {}; allowed are 0 to {}, which is what max_tokens and the context leave",
              request.min_tokens, most);
}

}  // namespace

void check_request(const Request& request, const ModelRunner::Limits& limits, int max_running) {
  check_lengths(request, limits);
  check_tokens(request, limits.vocab_size);
  check_sampling(request.sampling, request.penalties);
  const int most_choices = std::min(kMostChoices, max_running);
  check_limit(request.n <= max_running, "n", Limit::max_running, ErrorCode::invalid_argument,
              "n = {}; allowed are 1 to {}", request.n, most_choices);
  check_field(request.n >= 1 && request.n <= most_choices, "n", ErrorCode::invalid_argument,
              "n = {}; allowed are 1 to {}", request.n, most_choices);
  check_field(request.logprobs >= -1 && request.logprobs <= kMostLogprobs, "logprobs", ErrorCode::invalid_argument,
              "logprobs = {}; allowed are 0 to {}", request.logprobs, kMostLogprobs);
  check_field(!request.prompt_logprobs || request.logprobs >= 0, "prompt_logprobs", ErrorCode::invalid_argument,
              "prompt_logprobs needs logprobs; give logprobs from 0 to {}", kMostLogprobs);
  check_field(request.priority >= -100 && request.priority <= 100, "priority", ErrorCode::invalid_argument,
              "priority = {}; allowed are -100 to 100", request.priority);
  check_field(request.stop.size() <= kMostStops, "stop", ErrorCode::invalid_argument,
              "stop has {} texts; allowed are up to {}", request.stop.size(), kMostStops);
  for (const std::string& stop : request.stop)
    check_field(!stop.empty() && stop.size() <= kMostStopBytes, "stop", ErrorCode::invalid_argument,
                "stop has a text of {} bytes; allowed are 1 to {}", stop.size(), kMostStopBytes);
  check_field(!request.reproducible || limits.reproducible, "reproducible", ErrorCode::unsupported,
              "reproducible: required are pages that divide 128 tokens, supported are pages of {} tokens; missing is a "
              "page_size that does",
              limits.page_size);
}

}  // namespace weft::serve
