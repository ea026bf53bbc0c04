#include "serve/http/api_request.h"

#include <fmt/format.h>

#include <random>

#include "decode/conversation.h"
#include "serve/http/failure.h"
#include "serve/http/fields.h"
#include "serve/http/json.h"
#include "serve/request_checks.h"

namespace weft::serve::http {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

uint64_t random_seed() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  return random();
}

void check_model(Fields& fields, const ServerOptions& options) {
  const auto model = fields.optional_text("model");
  if (model && *model != options.model_name)
    throw Failure(404, "model_not_found",
                  fmt::format("model = {}; this server has {}", shown(*model), shown(options.model_name)), "model");
}

std::vector<std::pair<int32_t, float>> read_bias(Fields& fields) {
  std::vector<std::pair<int32_t, float>> bias;
  const nlohmann::json* value = fields.find("logit_bias");
  if (value == nullptr) return bias;
  const char* allowed = "an object of up to 1024 numbers by token id is needed";
  if (!value->is_object() || value->size() > kMostBiases) fields.refuse("logit_bias", allowed);
  for (const auto& [name, number] : value->items()) {
    if (name.empty() || name.size() > 9 || name.find_first_not_of("0123456789") != std::string::npos ||
        !is_float(number))
      fields.refuse("logit_bias", allowed);
    bias.emplace_back(std::stoi(name), number.get<float>());
  }
  return bias;
}

// What both kinds of request have.
Request read_common(Fields& fields, ApiRequest& api, const ServerOptions& options) {
  Request request;
  check_model(fields, options);
  api.stream = fields.boolean("stream", false);
  if (const nlohmann::json* stream_options = fields.find("stream_options")) {
    if (!stream_options->is_object() || !api.stream)
      fields.refuse("stream_options", "an object is allowed, with stream");
    Fields inner(*stream_options, "stream_options.");
    api.include_usage = inner.boolean("include_usage", false);
    inner.only("include_obfuscation", {true, false});
    inner.refuse_others();
  }
  request.n =
      static_cast<int>(fields.integer("n", 1, 1, std::min<int64_t>(kMostChoices, options.limits.n), Limit::max_n));
  request.sampling.temperature = fields.number("temperature", 1.f);
  request.sampling.top_p = fields.number("top_p", 1.f);
  request.sampling.top_k = static_cast<int>(fields.integer("top_k", 0, -1, INT32_MAX));
  if (request.sampling.top_k < 0) request.sampling.top_k = 0;  // some clients say -1 for all
  request.sampling.min_p = fields.number("min_p", 0.f);
  request.penalties.presence = fields.number("presence_penalty", 0.f);
  request.penalties.frequency = fields.number("frequency_penalty", 0.f);
  request.penalties.repetition = fields.number("repetition_penalty", 1.f);
  request.logit_bias = read_bias(fields);
  request.stop = fields.texts("stop", kMostStops);
  request.min_tokens = fields.integer("min_tokens", 0, 0, kMostTokens);
  request.ignore_eos = fields.boolean("ignore_eos", false);
  request.priority = static_cast<int>(fields.integer("priority", 0, -100, 100));
  request.reproducible = fields.boolean("reproducible", options.reproducible);
  request.seed = fields.find("seed") != nullptr ? static_cast<uint64_t>(fields.integer("seed", 0, INT64_MIN, INT64_MAX))
                                                : random_seed();
  fields.ignore({"user", "store", "metadata", "service_tier"});
  return request;
}

// A message's text: as it is, or in parts.
std::string content_of(const nlohmann::json& message, const std::string& where) {
  Fields fields(message, where);
  const nlohmann::json* content = fields.find("content");
  if (content == nullptr) fields.refuse("content", "a text is needed");
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fields.refuse("content", "a text, or a list of parts of type text, is needed");
  std::string text;
  for (const nlohmann::json& part : *content) {
    if (!part.is_object()) fields.refuse("content", "parts are objects of type text");
    Fields inner(part, where + "content.");
    inner.only("type", {"text"});
    text += inner.text("text", "");
    inner.refuse_others();
  }
  return text;
}

std::vector<int32_t> tokens_of_messages(Fields& fields, const Prompter& prompter) {
  const nlohmann::json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    fields.refuse("messages", "a list of at least one message is needed");
  if (prompter.chat_template == nullptr)
    throw Failure(400, "unsupported",
                  "messages: required is a chat template, which this model has none of; use /v1/completions",
                  "messages");
  decode::Conversation conversation(prompter.tokenizer, *prompter.chat_template);
  for (size_t i = 0; i < messages->size(); ++i) {
    const nlohmann::json& message = (*messages)[i];
    const std::string where = fmt::format("messages[{}].", i);
    if (!message.is_object()) fields.refuse("messages", "messages are objects with role and content");
    Fields inner(message, where);
    std::string role = inner.text("role", "");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      inner.refuse("role", "allowed are system, developer, user and assistant");
    inner.find("content");
    inner.ignore({"name"});
    inner.only("tool_calls", {nlohmann::json::array()});
    inner.only("function_call", {});
    inner.only("refusal", {});
    inner.only("audio", {});
    inner.refuse_others();
    conversation.add(role, prompter.tokenizer.as_plain_text(content_of(message, where)));
  }
  return conversation.tokens();
}

std::vector<int32_t> ids_of(const nlohmann::json& list, const Fields& fields, const std::string& name) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      fields.refuse(name, "a list of token ids is needed");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<int32_t> tokens_of_text(const std::string& text, const Prompter& prompter) {
  std::vector<int32_t> ids = prompter.tokenizer.encode(text);
  if (ids.empty() && prompter.tokenizer.bos() >= 0) ids.push_back(prompter.tokenizer.bos());
  return ids;
}

// A text, ids, or a list of either.
std::vector<std::vector<int32_t>> tokens_of_prompts(Fields& fields, ApiRequest& api, const Prompter& prompter,
                                                    int64_t most) {
  const nlohmann::json* prompt = fields.find("prompt");
  const std::string allowed =
      fmt::format("a text, a list of token ids, or a list of up to {} of either is needed", most);
  if (prompt == nullptr || (!prompt->is_string() && !prompt->is_array())) fields.refuse("prompt", allowed);
  const bool one = prompt->is_string() || (!prompt->empty() && prompt->front().is_number());
  const nlohmann::json list = one ? nlohmann::json::array({*prompt}) : *prompt;
  if (list.empty()) fields.refuse("prompt", allowed);
  if (list.size() > static_cast<size_t>(most)) fields.refuse("prompt", allowed, Limit::max_n);
  std::vector<std::vector<int32_t>> prompts;
  for (const nlohmann::json& each : list) {
    if (!each.is_string() && !each.is_array()) fields.refuse("prompt", allowed);
    prompts.push_back(each.is_string() ? tokens_of_text(each.get<std::string>(), prompter)
                                       : ids_of(each, fields, "prompt"));
    if (!api.echo) continue;
    for (const int32_t id : prompts.back())
      if (id >= prompter.tokenizer.vocab_size()) fields.refuse("prompt", "it has an id beyond the vocabulary");
    api.texts.push_back(each.is_string() ? each.get<std::string>() : prompter.tokenizer.decode(prompts.back()));
  }
  return prompts;
}

void check_prompt(const char* field, const std::vector<int32_t>& prompt, const ServerOptions& options) {
  if (options.limits.prompt_tokens > 0 && static_cast<int64_t>(prompt.size()) > options.limits.prompt_tokens)
    throw Failure(
        400, "context_full",
        fmt::format("the prompt has {} tokens; this server allows {}", prompt.size(), options.limits.prompt_tokens),
        field, Limit::max_prompt_tokens);
}

}  // namespace

ApiRequest read_chat(std::string_view body, const Prompter& prompter, const ServerOptions& options) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Fields fields(object);
  ApiRequest api;
  api.chat = true;
  api.written["prompt"] = "messages";  // of which it is made
  Request request = read_common(fields, api, options);
  request.max_tokens = fields.integer("max_tokens", -1, 1, kMostTokens);
  if (fields.find("max_completion_tokens") != nullptr) api.written["max_tokens"] = "max_completion_tokens";
  request.max_tokens = fields.integer("max_completion_tokens", request.max_tokens, 1, kMostTokens);
  api.logprobs = fields.boolean("logprobs", false);
  const auto top = static_cast<int>(fields.integer("top_logprobs", 0, 0, kMostLogprobs));
  if (top > 0 && !api.logprobs) fields.refuse("top_logprobs", "it needs logprobs: true");
  if (api.logprobs) request.logprobs = top;
  fields.only("response_format", {nlohmann::json::object({{"type", "text"}})});
  fields.only("tools", {nlohmann::json::array()});
  fields.only("functions", {nlohmann::json::array()});
  fields.only("tool_choice", {"none", "auto"});
  fields.only("parallel_tool_calls", {true, false});
  fields.only("modalities", {nlohmann::json::array({"text"})});
  request.prompt = tokens_of_messages(fields, prompter);
  fields.refuse_others();
  check_prompt("messages", request.prompt, options);
  api.requests.push_back(std::move(request));
  return api;
}

ApiRequest read_completion(std::string_view body, const Prompter& prompter, const ServerOptions& options) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Fields fields(object);
  ApiRequest api;
  Request request = read_common(fields, api, options);
  request.max_tokens = fields.integer("max_tokens", 16, 1, kMostTokens);
  api.echo = fields.boolean("echo", false);
  request.logprobs = static_cast<int>(fields.integer("logprobs", -1, 0, kMostLogprobs));
  api.logprobs = request.logprobs >= 0;
  request.prompt_logprobs = api.echo && api.logprobs;
  fields.only("best_of", {request.n});
  fields.only("suffix", {""});
  const auto prompts = tokens_of_prompts(fields, api, prompter, options.limits.n / request.n);
  fields.refuse_others();
  for (const auto& prompt : prompts) {
    check_prompt("prompt", prompt, options);
    request.prompt = prompt;
    api.requests.push_back(request);
  }
  return api;
}

std::vector<int32_t> read_tokenize(std::string_view body, const Prompter& prompter, const ServerOptions& options) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Fields fields(object);
  check_model(fields, options);
  const bool add_special = fields.boolean("add_special_tokens", true);
  std::vector<int32_t> ids;
  if (const auto prompt = fields.optional_text("prompt"))
    ids = prompter.tokenizer.encode(*prompt, {.add_special = add_special});
  else
    ids = tokens_of_messages(fields, prompter);
  fields.refuse_others();
  return ids;
}

std::vector<int32_t> read_detokenize(std::string_view body, const ServerOptions& options) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Fields fields(object);
  check_model(fields, options);
  const nlohmann::json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.refuse("tokens", "a list of token ids is needed");
  const std::vector<int32_t> ids = ids_of(*tokens, fields, "tokens");
  fields.refuse_others();
  return ids;
}

}  // namespace weft::serve::http
