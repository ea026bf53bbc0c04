#include "serve/request_checks.h"

#include <cmath>

#include "base/check.h"

namespace weft::serve {
namespace {

void check_range(const char* name, double value, double least, double most) {
  check(value >= least && value <= most, ErrorCode::invalid_argument, "{} = {}; allowed are {} to {}", name, value,
        least, most);
}

void check_sampling(const SamplingParams& sampling, const Penalties& penalties) {
  check_range("temperature", static_cast<double>(sampling.temperature), 0, 100);
  check(sampling.top_k >= 0, ErrorCode::invalid_argument, "top_k = {}; allowed are 0 (off) and more", sampling.top_k);
  check(sampling.top_p > 0.f && sampling.top_p <= 1.f, ErrorCode::invalid_argument,
        "top_p = {}; allowed are numbers above 0 up to 1 (off)", sampling.top_p);
  check_range("min_p", static_cast<double>(sampling.min_p), 0, 1);
  check(penalties.repetition > 0.f && penalties.repetition <= 100.f, ErrorCode::invalid_argument,
        "repetition_penalty = {}; allowed are numbers above 0 up to 100, 1 is off", penalties.repetition);
  check_range("presence_penalty", static_cast<double>(penalties.presence), -100, 100);
  check_range("frequency_penalty", static_cast<double>(penalties.frequency), -100, 100);
}

void check_tokens(const Request& request, int vocab_size) {
  for (size_t i = 0; i < request.prompt.size(); ++i)
    check(request.prompt[i] >= 0 && request.prompt[i] < vocab_size, ErrorCode::invalid_token,
          "prompt[{}] = {}; token ids are 0 to {}", i, request.prompt[i], vocab_size - 1);
  check(request.logit_bias.size() <= kMostBiases, ErrorCode::invalid_argument,
        "logit_bias has {} entries; allowed are up to {}", request.logit_bias.size(), kMostBiases);
  for (const auto& [id, bias] : request.logit_bias) {
    check(id >= 0 && id < vocab_size, ErrorCode::invalid_token, "logit_bias names token {}; token ids are 0 to {}", id,
          vocab_size - 1);
    check_range("logit_bias of a token", static_cast<double>(bias), -100, 100);
  }
}

void check_lengths(const Request& request, const ModelRunner::Limits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  check(prompt > 0, ErrorCode::invalid_argument, "prompt: has no tokens; give at least one");
  check(prompt < limits.context, ErrorCode::context_full,
        "prompt: has {} tokens; the context holds {}, one of them for the answer: shorten it", prompt, limits.context);
  check(request.max_tokens >= -1 && request.max_tokens != 0, ErrorCode::invalid_argument,
        "max_tokens = {}; allowed are 1 and more", request.max_tokens);
  check(request.max_tokens <= limits.context - prompt, ErrorCode::context_full,
        "max_tokens = {} after a prompt of {} tokens; the context holds {}: ask for at most {}", request.max_tokens,
        prompt, limits.context, limits.context - prompt);
  const int64_t most = request.max_tokens > 0 ? request.max_tokens : limits.context - prompt;
  check(request.min_tokens >= 0 && request.min_tokens <= most, ErrorCode::invalid_argument,
        "min_tokens = {}; allowed are 0 to {}, which is what max_tokens and the context leave", request.min_tokens,
        most);
}

}  // namespace

void check_request(const Request& request, const ModelRunner::Limits& limits, int max_running) {
  check_lengths(request, limits);
  check_tokens(request, limits.vocab_size);
  check_sampling(request.sampling, request.penalties);
  const int most_choices = std::min(kMostChoices, max_running);
  check(request.n >= 1 && request.n <= most_choices, ErrorCode::invalid_argument, "n = {}; allowed are 1 to {}",
        request.n, most_choices);
  check(request.logprobs >= -1 && request.logprobs <= kMostLogprobs, ErrorCode::invalid_argument,
        "logprobs = {}; allowed are 0 to {}", request.logprobs, kMostLogprobs);
  check(!request.prompt_logprobs || request.logprobs >= 0, ErrorCode::invalid_argument,
        "prompt_logprobs needs logprobs; give logprobs from 0 to {}", kMostLogprobs);
  check(request.priority >= -100 && request.priority <= 100, ErrorCode::invalid_argument,
        "priority = {}; allowed are -100 to 100", request.priority);
  check(request.stop.size() <= kMostStops, ErrorCode::invalid_argument, "stop has {} texts; allowed are up to {}",
        request.stop.size(), kMostStops);
  for (const std::string& stop : request.stop)
    check(!stop.empty() && stop.size() <= kMostStopBytes, ErrorCode::invalid_argument,
          "stop has a text of {} bytes; allowed are 1 to {}", stop.size(), kMostStopBytes);
  check(!request.reproducible || limits.reproducible, ErrorCode::unsupported,
        "reproducible: required are pages that divide 128 tokens, supported are pages of {} tokens; missing is a "
        "page_size "
        "that does",
        limits.page_size);
}

}  // namespace weft::serve
