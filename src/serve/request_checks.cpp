#include "serve/request_checks.h"

#include <algorithm>

namespace weft::serve {
namespace {

// Goes on after a fault: who asks hears of all of them.
class Faults {
 public:
  template <class... Args>
  void check(bool ok, const char* field, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    if (!ok) list_.emplace_back(code, field, fmt::format(format, std::forward<Args>(args)...));
  }
  // The same where the server's limit is the reason.
  template <class... Args>
  void check_limit(bool ok, const char* field, Limit limit, ErrorCode code, fmt::format_string<Args...> format,
                   Args&&... args) {
    if (!ok) list_.emplace_back(code, field, fmt::format(format, std::forward<Args>(args)...), limit);
  }
  void check_range(const char* field, double value, double least, double most) {
    check(value >= least && value <= most, field, ErrorCode::invalid_argument, "{} = {}; allowed are {} to {}", field,
          value, least, most);
  }
  std::vector<FieldError>& list() { return list_; }

 private:
  std::vector<FieldError> list_;
};

void check_sampling(Faults& faults, const SamplingParams& sampling, const Penalties& penalties) {
  faults.check_range("temperature", static_cast<double>(sampling.temperature), 0, 100);
  faults.check(sampling.top_k >= 0, "top_k", ErrorCode::invalid_argument, "top_k = {}; allowed are 0 (off) and more",
               sampling.top_k);
  faults.check(sampling.top_p > 0.f && sampling.top_p <= 1.f, "top_p", ErrorCode::invalid_argument,
               "top_p = {}; allowed are numbers above 0 up to 1 (off)", sampling.top_p);
  faults.check_range("min_p", static_cast<double>(sampling.min_p), 0, 1);
  faults.check(penalties.repetition > 0.f && penalties.repetition <= 100.f, "repetition_penalty",
               ErrorCode::invalid_argument, "repetition_penalty = {}; allowed are numbers above 0 up to 100, 1 is off",
               penalties.repetition);
  faults.check_range("presence_penalty", static_cast<double>(penalties.presence), -100, 100);
  faults.check_range("frequency_penalty", static_cast<double>(penalties.frequency), -100, 100);
}

// The first wrong one of each: there may be as many as tokens.
void check_tokens(Faults& faults, const Request& request, int vocab_size) {
  const auto is_token = [vocab_size](int32_t id) { return id >= 0 && id < vocab_size; };
  const auto wrong = std::find_if_not(request.prompt.begin(), request.prompt.end(), is_token);
  if (wrong != request.prompt.end())
    faults.check(false, "prompt", ErrorCode::invalid_token, "prompt[{}] = {}; token ids are 0 to {}",
                 wrong - request.prompt.begin(), *wrong, vocab_size - 1);
  const auto bias = std::find_if_not(request.logit_bias.begin(), request.logit_bias.end(),
                                     [&](const auto& entry) { return is_token(entry.first); });
  if (bias != request.logit_bias.end())
    faults.check(false, "logit_bias", ErrorCode::invalid_token, "logit_bias names token {}; token ids are 0 to {}",
                 bias->first, vocab_size - 1);
}

void check_bias(Faults& faults, const Request& request) {
  faults.check(request.logit_bias.size() <= kMostBiases, "logit_bias", ErrorCode::invalid_argument,
               "logit_bias has {} entries; allowed are up to {}", request.logit_bias.size(), kMostBiases);
  const auto wrong = std::find_if_not(request.logit_bias.begin(), request.logit_bias.end(), [](const auto& entry) {
    return entry.second >= -100.f && entry.second <= 100.f;
  });
  if (wrong != request.logit_bias.end())
    faults.check_range("logit_bias", static_cast<double>(wrong->second), -100, 100);
}

// Clients shorten a conversation on "maximum context length".
void check_lengths(Faults& faults, const Request& request, const ModelRunner::Limits& limits) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t least = request.max_tokens == 0 ? 0 : 1, room = limits.context - prompt;
  faults.check(prompt > 0, "prompt", ErrorCode::invalid_argument, "prompt: has no tokens; give at least one");
  faults.check(request.max_tokens >= -1, "max_tokens", ErrorCode::invalid_argument,
               "max_tokens = {}; allowed are 0 and more, or -1 for what the context leaves", request.max_tokens);
  if (room < least)
    return faults.check_limit(false, "prompt", Limit::max_prompt_tokens, ErrorCode::context_full,
                              "prompt: has {} tokens; this model's maximum context length is {} tokens, {} of them for "
                              "the answer: reduce the length of the messages or of the prompt",
                              prompt, limits.context, least);
  faults.check(request.max_tokens <= room, "max_tokens", ErrorCode::context_full,
               "max_tokens = {} after a prompt of {} tokens; this model's maximum context length is {} tokens: ask for "
               "at most {}, or reduce the length of the messages or of the prompt",
               request.max_tokens, prompt, limits.context, room);
  const bool asked = request.max_tokens >= 0 && request.max_tokens <= room;
  const int64_t most = asked ? request.max_tokens : room;
  faults.check(request.min_tokens >= 0 && request.min_tokens <= most, "min_tokens", ErrorCode::invalid_argument,
               "min_tokens = {}; allowed are 0 to {}, {}", request.min_tokens, most,
               asked ? "as many as may be made at most" : "as many as the context has room for");
}

void check_choices(Faults& faults, const Request& request, int max_running) {
  const int most_choices = std::min(kMostChoices, max_running);
  if (request.n > max_running)
    return faults.check_limit(false, "n", Limit::max_running, ErrorCode::invalid_argument,
                              "n = {}; allowed are 1 to {}", request.n, most_choices);
  faults.check(request.n >= 1 && request.n <= most_choices, "n", ErrorCode::invalid_argument,
               "n = {}; allowed are 1 to {}", request.n, most_choices);
}

void throw_all(const std::vector<FieldError>& faults) {
  if (faults.empty()) return;
  const FieldError& first = faults.front();
  if (faults.size() == 1) throw FieldError(first);
  std::string message = fmt::format("{} fields are wrong", faults.size());
  std::optional<Limit> limit;
  for (const FieldError& fault : faults) {
    message += ". " + fault.message();
    if (!limit) limit = fault.limit;
  }
  throw FieldError(first.code(), first.field, message, limit);
}

}  // namespace

std::vector<FieldError> faults_of_values(const Request& request) {
  Faults faults;
  check_sampling(faults, request.sampling, request.penalties);
  check_bias(faults, request);
  faults.check(request.logprobs >= -1 && request.logprobs <= kMostLogprobs, "logprobs", ErrorCode::invalid_argument,
               "logprobs = {}; allowed are 0 to {}", request.logprobs, kMostLogprobs);
  faults.check(!request.prompt_logprobs || request.logprobs >= 0, "prompt_logprobs", ErrorCode::invalid_argument,
               "prompt_logprobs needs logprobs; give logprobs from 0 to {}", kMostLogprobs);
  faults.check(request.priority >= -100 && request.priority <= 100, "priority", ErrorCode::invalid_argument,
               "priority = {}; allowed are -100 to 100", request.priority);
  for (const auto& [name, seconds] :
       {std::pair("max_queue_s", request.max_queue_s), std::pair("max_total_s", request.max_total_s)})
    faults.check(seconds >= 0, name, ErrorCode::invalid_argument, "{} = {}; allowed are 0 (never) and more", name,
                 seconds);
  faults.check(request.stop.size() <= kMostStops, "stop", ErrorCode::invalid_argument,
               "stop has {} texts; allowed are up to {}", request.stop.size(), kMostStops);
  const auto stop = std::find_if_not(request.stop.begin(), request.stop.end(), [](const std::string& text) {
    return !text.empty() && text.size() <= kMostStopBytes;
  });
  if (stop != request.stop.end())
    faults.check(false, "stop", ErrorCode::invalid_argument, "stop has a text of {} bytes; allowed are 1 to {}",
                 stop->size(), kMostStopBytes);
  return std::move(faults.list());
}

void check_request(const Request& request, const ModelRunner::Limits& limits, int max_running) {
  Faults faults;
  check_lengths(faults, request, limits);
  check_tokens(faults, request, limits.vocab_size);
  check_choices(faults, request, max_running);
  faults.check(!request.reproducible || limits.reproducible, "reproducible", ErrorCode::unsupported,
               "reproducible: required are pages that divide 128 tokens and steps that are not fused alone (--step "
               "fused); this server has pages of {} tokens, and steps: {}",
               limits.page_size, limits.step_form);
  for (FieldError& fault : faults_of_values(request)) faults.list().push_back(std::move(fault));
  throw_all(faults.list());
}

}  // namespace weft::serve
