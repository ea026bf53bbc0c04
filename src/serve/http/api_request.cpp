#include "serve/http/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "serve/http/failure.h"
#include "serve/http/fields.h"
#include "serve/http/json.h"
#include "serve/request_checks.h"

namespace weft::serve::http {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr size_t kMostModelName = 256;  // bytes: each event of an answer has it

uint64_t random_seed() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  return random();
}

// The name that the client has for the model.
std::string read_model(Fields& fields, const ServerOptions& options) {
  const std::string model = fields.text("model", options.model_name);
  if (model != options.model_name && !is_served(model, options))
    throw Failure(404, "model_not_found",
                  fmt::format("model = {}; this server has {}", shown(model), shown(options.model_name)), "model");
  return model;
}

// "05" would be another name of token 5.
std::optional<int32_t> id_of_key(const std::string& key) {
  if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  if (key.size() > 1 && key.front() == '0') return std::nullopt;
  return std::stoi(key);
}

std::vector<std::pair<int32_t, float>> read_bias(Fields& fields) {
  std::vector<std::pair<int32_t, float>> bias;
  const nlohmann::json* value = fields.find("logit_bias");
  if (value == nullptr) return bias;
  if (!value->is_object() || value->size() > kMostBiases)
    return fields.refuse("logit_bias", "an object of up to 1024 numbers by token id is needed"), bias;
  for (const auto& [name, number] : value->items()) {
    const std::optional<int32_t> id = id_of_key(name);
    if (!id)
      fields.say("logit_bias", fmt::format(" has the key {}, which is no token id; ids are whole numbers of up to nine "
                                           "digits without zeros in front",
                                           shown(name)));
    else if (!is_float(number))
      fields.say("logit_bias", fmt::format("[\"{}\"] = {}; a number is needed", name, shown(number)));
    else
      bias.emplace_back(*id, number.get<float>());
  }
  return bias;
}

void read_stream(Fields& fields, Findings& findings, ApiRequest& api) {
  api.stream = fields.boolean("stream", false);
  const nlohmann::json* options = fields.find("stream_options");
  if (options == nullptr || (options->is_object() && options->empty())) return;
  if (!options->is_object()) return fields.refuse("stream_options", "an object is needed");
  if (!api.stream) return fields.say("stream_options", " is allowed with stream = true alone; stream is false");
  Fields inner(*options, findings, "stream_options.");
  api.include_usage = inner.boolean("include_usage", false);
  inner.boolean("include_obfuscation", false);  // no event is padded
  inner.note_others();
}

// llama.cpp's clients have another name for it.
float read_repetition(Fields& fields, ApiRequest& api) {
  const float repetition = fields.number("repetition_penalty", 1.f);
  const float repeat = fields.number("repeat_penalty", repetition);
  if (fields.find("repeat_penalty") == nullptr) return repetition;
  if (fields.find("repetition_penalty") == nullptr)
    api.written["repetition_penalty"] = "repeat_penalty";
  else if (repeat != repetition)
    fields.refuse("repeat_penalty", "repetition_penalty is the same and has another value: give one of them");
  return repeat;
}

// What other servers have and this one has not: without it an answer would be another than the one that was asked for.
void refuse_features(Fields& fields) {
  for (const char* name :
       {"stop_token_ids", "bad_words", "allowed_token_ids", "guided_json", "guided_regex", "guided_choice",
        "guided_grammar", "structured_outputs", "grammar", "json_schema", "truncate_prompt_tokens"})
    fields.only(name, {});
  fields.only("prompt_logprobs", {false});
  fields.only("use_beam_search", {false});
  fields.only("include_stop_str_in_output", {false});
}

void read_response_format(Fields& fields, Findings& findings) {
  const nlohmann::json* format = fields.find("response_format");
  if (format == nullptr || !format->is_object() || !format->contains("type")) return fields.only("response_format", {});
  Fields inner(*format, findings, "response_format.");
  inner.only("type", {"text"});
  if ((*format)["type"] == "text") inner.note_others();
}

// What both kinds of request have.
Request read_common(Fields& fields, Findings& findings, ApiRequest& api, const ServerOptions& options) {
  Request request;
  api.model = read_model(fields, options);
  read_stream(fields, findings, api);
  const int64_t most_choices = std::min<int64_t>(kMostChoices, options.limits.n);
  request.n = api.n = static_cast<int>(fields.integer("n", 1, 1, most_choices, Limit::max_n));
  request.sampling.temperature = fields.number("temperature", 1.f);
  request.sampling.top_p = fields.number("top_p", 1.f);
  request.sampling.top_k = static_cast<int>(fields.integer("top_k", 0, -1, INT32_MAX));
  if (request.sampling.top_k < 0) request.sampling.top_k = 0;  // some clients say -1 for all
  request.sampling.min_p = fields.number("min_p", 0.f);
  request.penalties.presence = fields.number("presence_penalty", 0.f);
  request.penalties.frequency = fields.number("frequency_penalty", 0.f);
  request.penalties.repetition = read_repetition(fields, api);
  request.logit_bias = read_bias(fields);
  request.stop = fields.texts("stop", kMostStops);
  request.min_tokens = fields.integer("min_tokens", 0, 0, kMostTokens);
  request.ignore_eos = fields.boolean("ignore_eos", false);
  request.special_text = !fields.boolean("skip_special_tokens", true);
  request.priority = static_cast<int>(fields.integer("priority", 0, -100, 100));
  request.reproducible = fields.boolean("reproducible", options.reproducible);
  request.seed = fields.find("seed") != nullptr ? static_cast<uint64_t>(fields.integer("seed", 0, INT64_MIN, INT64_MAX))
                                                : random_seed();
  refuse_features(fields);
  read_response_format(fields, findings);
  fields.ignore({"user", "store", "metadata", "service_tier", "reasoning_effort", "verbosity", "prompt_cache_key",
                 "prompt_cache_retention", "safety_identifier", "cache_prompt"});
  return request;
}

// Once all fields are read: throws what was wrong with them, or with the values of the request.
void check_all(const Fields& fields, Findings& findings, const Request& request, const ApiRequest& api) {
  fields.note_others();
  for (const FieldError& fault : faults_of_values(request)) {
    const auto written = api.written.find(fault.field);
    const Failure failure = failure_of(fault);
    findings.add(written == api.written.end() ? failure : failure.with_field(written->second));
  }
  findings.throw_faults();
}

// ---------------------------------------------------------------- chats

// A message's text: as it is, or in parts.
std::string content_of(Fields& fields, Findings& findings, const std::string& where, bool may_be_empty) {
  const nlohmann::json* content = fields.find("content");
  if (content != nullptr && content->is_string()) return content->get<std::string>();
  if (content == nullptr && may_be_empty) return {};
  if (content == nullptr || !content->is_array()) {
    fields.refuse("content", "a text, or a list of parts of type text, is needed");
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const nlohmann::json& part = (*content)[i];
    if (!part.is_object()) {
      fields.refuse("content", "parts are objects of type text");
      break;
    }
    Fields inner(part, findings, fmt::format("{}content[{}].", where, i));
    inner.only("type", {"text"});
    text += inner.text("text", "");
    for (const char* name : {"image_url", "input_audio", "file"})
      if (inner.find(name) != nullptr && inner.find("type") == nullptr)
        inner.refuse(name, "parts of type text are read");
    inner.ignore({"cache_control", "annotations"});
    inner.note_others();
  }
  return text;
}

// Returns how many bytes of text the message has.
size_t add_message(decode::Conversation& conversation, const nlohmann::json& message, const std::string& where,
                   Findings& findings, const Tokenizer& tokenizer) {
  Fields fields(message, findings, where);
  const nlohmann::json* said = fields.find("role");
  std::string role = said != nullptr && said->is_string() ? said->get<std::string>() : std::string();
  if (role == "developer") role = "system";
  const bool assistant = role == "assistant";
  if (role != "system" && role != "user" && !assistant)
    fields.refuse("role", "allowed are system, developer, user and assistant");
  const std::string content = content_of(fields, findings, where, assistant);
  fields.ignore({"name", "id", "annotations", "reasoning_content", "reasoning", "cache_control"});
  for (const char* name : {"tool_calls", "function_call", "refusal", "audio"}) fields.only(name, {});
  fields.note_others();
  conversation.add(role, tokenizer.as_plain_text(content));
  return content.size();
}

// Texts of a client are text, wherever the template puts them.
nlohmann::json as_plain_texts(const nlohmann::json& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return tokenizer.as_plain_text(value.get<std::string>());
  nlohmann::json plain = value;
  if (value.is_array())
    for (nlohmann::json& element : plain) element = as_plain_texts(element, tokenizer);
  if (!value.is_object()) return plain;
  plain.clear();
  for (const auto& [name, element] : value.items())
    plain[tokenizer.as_plain_text(name)] = as_plain_texts(element, tokenizer);
  return plain;
}

void read_variables(decode::Conversation& conversation, Fields& fields, Findings& findings,
                    const Tokenizer& tokenizer) {
  const nlohmann::json* variables = fields.find("chat_template_kwargs");
  if (variables == nullptr) return;
  if (!variables->is_object())
    return fields.refuse("chat_template_kwargs", "an object with variables of the chat template is needed");
  Fields inner(*variables, findings, "chat_template_kwargs.");
  for (const char* name : decode::Conversation::kOwnVariables)
    if (inner.find(name) != nullptr) inner.refuse(name, "the server gives the template this variable itself");
  conversation.set_variables(dump(as_plain_texts(*variables, tokenizer)));
}

// What goes into the template, and the template's tokens.
decode::Conversation read_conversation(Fields& fields, Findings& findings, const Prompter& prompter) {
  if (prompter.chat_template == nullptr)
    throw Failure(400, "unsupported",
                  "messages: required is a chat template, and this model has none that Weft reads; use /v1/completions",
                  "messages");
  decode::Conversation conversation(prompter.tokenizer, *prompter.chat_template);
  read_variables(conversation, fields, findings, prompter.tokenizer);
  fields.only("tools", {});
  fields.only("chat_template", {});
  fields.only("documents", {});
  fields.only("add_generation_prompt", {true});
  fields.only("continue_final_message", {false});
  const nlohmann::json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.refuse("messages", "a list of at least one message is needed");
    return conversation;
  }
  prompter.check_messages(messages->size(), 0, "messages");
  size_t text_bytes = 0;
  for (size_t i = 0; i < messages->size(); ++i) {
    const nlohmann::json& message = (*messages)[i];
    if (message.is_object())
      text_bytes += add_message(conversation, message, fmt::format("messages[{}].", i), findings, prompter.tokenizer);
    else
      findings.add(
          Failure(400, "invalid_argument",
                  fmt::format("messages[{}] = {}; messages are objects with role and content", i, shown(message)),
                  fmt::format("messages[{}]", i)));
    prompter.check_messages(0, text_bytes, "messages");
  }
  return conversation;
}

// ---------------------------------------------------------------- prompts

bool is_id(const nlohmann::json& value) {
  const std::optional<int64_t> id = whole_number(value);
  return id && *id >= 0 && *id <= INT32_MAX;
}

std::vector<int32_t> ids_of(const nlohmann::json& list) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const nlohmann::json& id : list) ids.push_back(static_cast<int32_t>(*whole_number(id)));
  return ids;
}

// Says which element of a list is no token id, if any: `where` names the list, from the field on.
bool check_ids(const Fields& fields, const char* name, const std::string& where, const nlohmann::json& list) {
  const auto wrong = std::find_if_not(list.begin(), list.end(), is_id);
  if (wrong == list.end()) return true;
  fields.say(name, fmt::format("{}[{}] = {}; token ids are whole numbers from 0 to {}", where, wrong - list.begin(),
                               shown(*wrong), INT32_MAX));
  return false;
}

// A text, ids, or a list of either: each a text or ids. Of each, `choices` are made.
std::vector<const nlohmann::json*> read_prompts(Fields& fields, int64_t most_choices, int choices) {
  const nlohmann::json* prompt = fields.find("prompt");
  const int64_t most = most_choices / choices;
  if (prompt == nullptr || (!prompt->is_string() && !prompt->is_array()) || prompt->empty())
    return fields.refuse("prompt", "a text, a list of token ids, or a list of either is needed"),
           std::vector<const nlohmann::json*>();
  std::vector<const nlohmann::json*> prompts;
  if (prompt->is_string() || prompt->front().is_number()) {
    if (prompt->is_string() || check_ids(fields, "prompt", "", *prompt)) prompts.push_back(prompt);
    return prompts;
  }
  if (prompt->size() > static_cast<size_t>(most)) {
    fields.say(
        "prompt",
        fmt::format(" is a list of {}; allowed are up to {}: a request may have {} choices, and of each prompt {} "
                    "are asked for",
                    prompt->size(), most, most_choices, choices),
        Limit::max_n);
    return prompts;
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const nlohmann::json& each = (*prompt)[i];
    if (each.is_array() ? !check_ids(fields, "prompt", fmt::format("[{}]", i), each) : !each.is_string()) {
      if (!each.is_array())
        fields.say("prompt", fmt::format("[{}] = {}; a text or a list of token ids is needed", i, shown(each)));
      return {};
    }
    prompts.push_back(&each);
  }
  return prompts;
}

std::vector<int32_t> tokens_of_prompt(const nlohmann::json& prompt, const Prompter& prompter) {
  if (!prompt.is_string()) {
    prompter.check_tokens(std::ssize(prompt), "prompt");
    return ids_of(prompt);
  }
  std::vector<int32_t> ids = prompter.tokens_of(prompt.get_ref<const std::string&>(), "prompt");
  if (ids.empty() && prompter.tokenizer.bos() >= 0) ids.push_back(prompter.tokenizer.bos());
  return ids;
}

std::string echo_of(const nlohmann::json& prompt, const Request& request, const Tokenizer& tokenizer) {
  if (prompt.is_string()) return prompt.get<std::string>();
  for (const int32_t id : request.prompt)
    if (id >= tokenizer.vocab_size())
      throw Failure(400, "invalid_token",
                    fmt::format("prompt: has token id {}; ids are 0 to {}", id, tokenizer.vocab_size() - 1), "prompt");
  return tokenizer.decode(request.prompt, !request.special_text);
}

// How many choices are made of a prompt, so that the best ones of them are answered.
void read_best_of(Fields& fields, ApiRequest& api, Request& request, const ServerOptions& options) {
  const int64_t most = std::min<int64_t>(kMostChoices, options.limits.n);
  request.n = static_cast<int>(fields.integer("best_of", api.n, 1, most, Limit::max_n));
  if (fields.find("best_of") != nullptr) api.written["n"] = "best_of";
  if (request.n < api.n) {
    fields.refuse("best_of", fmt::format("it has to be n = {} at least, as many as are answered", api.n));
    request.n = api.n;
  }
  if (request.n > api.n && api.stream)
    fields.refuse("best_of",
                  fmt::format("with stream it has to be n = {}: which are the best is known at the end", api.n));
  if (request.n > api.n) request.logprobs = std::max(request.logprobs, 0);
}

void tell(const Findings& findings, IgnoredFields* ignored) {
  if (ignored != nullptr) ignored->add(findings.ignored());
}

}  // namespace

bool is_served(const std::string& model, const ServerOptions& options) {
  if (model == options.model_name) return true;
  return std::any_of(options.aliases.begin(), options.aliases.end(), [&](const std::string& alias) {
    return alias == model || (alias == "*" && !model.empty() && model.size() <= kMostModelName);
  });
}

ApiRequest read_chat(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                     IgnoredFields* ignored) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Findings findings(options.strict);
  Fields fields(object, findings);
  ApiRequest api;
  api.chat = true;
  api.written["prompt"] = "messages";  // of which it is made
  Request request = read_common(fields, findings, api, options);
  request.max_tokens = fields.integer("max_tokens", -1, 1, kMostTokens);
  if (fields.find("max_completion_tokens") != nullptr) api.written["max_tokens"] = "max_completion_tokens";
  request.max_tokens = fields.integer("max_completion_tokens", request.max_tokens, 1, kMostTokens);
  api.logprobs = fields.boolean("logprobs", false);
  const auto top = static_cast<int>(fields.integer("top_logprobs", 0, 0, kMostLogprobs));
  if (top > 0 && !api.logprobs) fields.refuse("top_logprobs", "it needs logprobs: true");
  if (api.logprobs) request.logprobs = top;
  for (const char* name : {"functions", "prediction", "audio"}) fields.only(name, {});
  fields.only("tool_choice", {"none", "auto"});
  fields.only("function_call", {"none", "auto"});
  fields.only("modalities", {nlohmann::json::array({"text"})});
  fields.only("echo", {false});
  fields.ignore({"parallel_tool_calls"});
  const decode::Conversation conversation = read_conversation(fields, findings, prompter);
  check_all(fields, findings, request, api);
  tell(findings, ignored);
  request.prompt = prompter.tokens_of(conversation, "messages");
  api.requests.push_back(std::move(request));
  return api;
}

ApiRequest read_completion(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                           IgnoredFields* ignored) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Findings findings(options.strict);
  Fields fields(object, findings);
  ApiRequest api;
  Request request = read_common(fields, findings, api, options);
  request.max_tokens = fields.integer("max_tokens", 16, 0, kMostTokens);
  api.may_be_shorter = fields.find("max_tokens") == nullptr;
  api.echo = fields.boolean("echo", false);
  request.logprobs = static_cast<int>(fields.integer("logprobs", -1, 0, kMostLogprobs));
  api.logprobs = request.logprobs >= 0;
  request.prompt_logprobs = api.echo && api.logprobs;
  read_best_of(fields, api, request, options);
  fields.only("suffix", {});
  const auto prompts = read_prompts(fields, options.limits.n, request.n);
  check_all(fields, findings, request, api);
  tell(findings, ignored);
  for (const nlohmann::json* prompt : prompts) {
    request.prompt = tokens_of_prompt(*prompt, prompter);
    if (api.echo) api.texts.push_back(echo_of(*prompt, request, prompter.tokenizer));
    api.requests.push_back(request);
  }
  return api;
}

std::vector<int32_t> read_tokenize(std::string_view body, const Prompter& prompter, const ServerOptions& options,
                                   IgnoredFields* ignored) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Findings findings(options.strict);
  Fields fields(object, findings);
  read_model(fields, options);
  const bool add_special = fields.boolean("add_special_tokens", true);
  const auto prompt = fields.optional_text("prompt");
  std::optional<decode::Conversation> conversation;
  if (fields.find("prompt") == nullptr)
    conversation.emplace(read_conversation(fields, findings, prompter));
  else if (fields.find("messages") != nullptr)
    fields.refuse("messages", "a prompt is given: give one of them");
  fields.note_others();
  findings.throw_faults();
  tell(findings, ignored);
  return prompt ? prompter.tokens_of(*prompt, "prompt", add_special) : prompter.tokens_of(*conversation, "messages");
}

std::vector<int32_t> read_detokenize(std::string_view body, const ServerOptions& options, IgnoredFields* ignored) {
  const nlohmann::json object = parse_object(body, options.limits.json_depth);
  Findings findings(options.strict);
  Fields fields(object, findings);
  read_model(fields, options);
  const nlohmann::json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array())
    fields.refuse("tokens", "a list of token ids is needed");
  else
    check_ids(fields, "tokens", "", *tokens);
  fields.note_others();
  findings.throw_faults();
  tell(findings, ignored);
  return ids_of(*tokens);
}

}  // namespace weft::serve::http
