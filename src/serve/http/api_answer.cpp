#include "serve/http/api_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

#include "decode/text_stream.h"
#include "serve/http/json.h"

namespace weft::serve::http {
namespace {

using nlohmann::json;

std::string new_id(bool chat) {
  static thread_local std::mt19937_64 random(std::random_device{}());
  return fmt::format("{}{:016x}{:016x}", chat ? "chatcmpl-" : "cmpl-", random(), random());
}

// JSON has no infinity: what is impossible has the least number that clients expect.
double finite(double logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

}  // namespace

ApiAnswer::ApiAnswer(const ApiRequest& api, const Tokenizer& tokenizer, const std::string& model_name)
    : chat_(api.chat),
      stream_(api.stream),
      usage_wanted_(api.include_usage),
      logprobs_(api.logprobs),
      tokenizer_(tokenizer),
      model_(model_name),
      id_(new_id(api.chat)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      n_(api.requests.front().n),
      answered_(api.n) {
  json every = envelope();
  if (usage_wanted_) every["usage"] = nullptr;
  event_end_ = dump(every).substr(1);
  for (size_t prompt = 0; prompt < api.requests.size(); ++prompt) {
    const Request& request = api.requests[prompt];
    if (api.echo) echoes_.push_back(echo_of(api.texts[prompt], request.prompt));
    for (int i = 0; i < request.n; ++i) choices_.push_back({.text = {}, .finish = {}, .logprobs = empty_logprobs()});
  }
}

// Tokens lie in the text as decoding puts them there: the space that encoding put in front is gone. Control tokens show
// where the text shows them, but for a BOS that encoding put in front.
ApiAnswer::Echo ApiAnswer::echo_of(const std::string& text, const std::vector<int32_t>& ids) const {
  Echo echo{text, 0, ids.front(), {}};
  const bool hides = tokenizer_.decode(ids) == text;
  const bool bos_shows = !hides && text.starts_with(tokenizer_.piece(ids.front(), false));
  const auto piece_of = [&](size_t i) {
    return tokenizer_.piece(ids[i], hides || (i == 0 && ids[i] == tokenizer_.bos() && !bos_shows));
  };
  size_t bytes = 0;
  for (const int32_t id : ids) bytes += tokenizer_.piece(id, hides).size();
  bool strips = bytes > tokenizer_.decode(ids, hides).size();
  decode::TextStream stream;
  std::string said;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string piece = piece_of(i);
    if (!piece.empty() && std::exchange(strips, false)) piece.erase(0, 1);
    echo.offsets.push_back(stream.offset_of(piece));
    said += stream.push(piece);
  }
  said += stream.finish();
  if (decode::valid_utf8(text) != text) echo.text = said;  // of ids, which may be anything
  echo.characters = decode::num_characters(echo.text);
  return echo;
}

// A token that is part of a character has no text of its own: its name is that of its bytes, as OpenAI writes them, so
// that no two of them share one.
std::string ApiAnswer::name_of(int32_t id) const {
  const std::string bytes = tokenizer_.piece(id, false);
  if (decode::valid_utf8(bytes) == bytes) return bytes;
  std::string name = chat_ ? "" : "bytes:";
  for (const char byte : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  return name;
}

json ApiAnswer::empty_logprobs() const {
  if (!logprobs_) return nullptr;
  if (chat_) return {{"content", json::array()}};
  return {{"tokens", json::array()},
          {"token_logprobs", json::array()},
          {"top_logprobs", json::array()},
          {"text_offset", json::array()}};
}

json ApiAnswer::token_logprob(const TokenLogprob& token) const {
  const auto one = [&](int32_t id, double logprob) {
    const std::string bytes = tokenizer_.piece(id, false);
    return json{{"token", name_of(id)},
                {"logprob", finite(logprob)},
                {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
  };
  json entry = one(token.id, token.logprob);
  entry["top_logprobs"] = json::array();
  for (const auto& [id, logprob] : token.top) entry["top_logprobs"].push_back(one(id, logprob));
  return entry;
}

// The token itself is among them whatever its rank. Of others with the same text the most probable one counts.
json ApiAnswer::top_logprobs(const TokenLogprob& token) const {
  json top = {{name_of(token.id), finite(token.logprob)}};
  for (const auto& [id, logprob] : token.top) top.emplace(name_of(id), finite(logprob));
  return top;
}

void ApiAnswer::add_logprob(json& to, const TokenLogprob& token, int64_t offset) const {
  if (chat_) return to["content"].push_back(token_logprob(token));
  to["tokens"].push_back(name_of(token.id));
  to["token_logprobs"].push_back(finite(token.logprob));
  to["top_logprobs"].push_back(top_logprobs(token));
  to["text_offset"].push_back(offset);
}

json ApiAnswer::envelope() const {
  const char* object = chat_ ? stream_ ? "chat.completion.chunk" : "chat.completion" : "text_completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
}

json ApiAnswer::usage() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", output_tokens_},
          {"total_tokens", prompt_tokens_ + output_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}}}};
}

std::vector<std::string> ApiAnswer::add(size_t index, const Update& update) {
  const size_t number = index * static_cast<size_t>(n_) + static_cast<size_t>(update.choice);
  Choice& choice = choices_[number];
  std::string text = update.text;
  json logprobs = stream_ ? empty_logprobs() : json();
  json& to = stream_ ? logprobs : choice.logprobs;
  const bool first = !choice.begun;
  const Echo* echo = echoes_.empty() ? nullptr : &echoes_[index];
  if (first && echo != nullptr) {
    text = echo->text + text;
    if (logprobs_) {  // nothing says how probable the first token is
      to["tokens"].push_back(name_of(echo->first_id));
      to["token_logprobs"].push_back(nullptr);
      to["top_logprobs"].push_back(nullptr);
      to["text_offset"].push_back(echo->offsets.front());
      for (size_t i = 0; i < update.prompt.size(); ++i) add_logprob(to, update.prompt[i], echo->offsets.at(i + 1));
    }
  }
  choice.begun = true;
  if (update.logprob) {
    choice.logprob_sum += update.logprob->logprob;
    ++choice.logprobs_summed;
    if (logprobs_) add_logprob(to, *update.logprob, update.text_offset + (echo != nullptr ? echo->characters : 0));
  }
  choice.finish = update.finish;
  if (update.last) {
    prompt_tokens_ += update.prompt_tokens;
    cached_tokens_ += update.cached_tokens;
    output_tokens_ += update.output_tokens;
  }
  if (!stream_) {
    choice.text += text;
    return {};
  }
  if (text.empty() && update.finish.empty() && !update.logprob && !first) return {};
  return {event_of(number, text, first, update.finish, logprobs)};
}

// Only what differs from token to token is made anew: it is on the way of every token of every stream.
std::string ApiAnswer::event_of(size_t number, const std::string& text, bool first, const std::string& finish,
                                const json& logprobs) const {
  std::string said;
  if (chat_) {
    json delta = json::object();
    if (first) delta["role"] = "assistant";
    if (first || !text.empty()) delta["content"] = text;
    said = "\"delta\":" + dump(delta);
  } else {
    said = "\"text\":" + dump(text);
  }
  return fmt::format(R"({{"choices":[{{"index":{},{},"finish_reason":{},"logprobs":{}}}],{})", number, said,
                     finish.empty() ? "null" : dump(finish), logprobs.is_null() ? "null" : dump(logprobs), event_end_);
}

std::vector<std::string> ApiAnswer::last_events() const {
  std::vector<std::string> events;
  if (usage_wanted_) {
    json event = envelope();
    event["choices"] = json::array();
    event["usage"] = usage();
    events.push_back(dump(event));
  }
  events.emplace_back("[DONE]");
  return events;
}

// The choices to answer, best first where not all are.
std::vector<size_t> ApiAnswer::answered() const {
  std::vector<size_t> all(choices_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (answered_ == n_) return all;
  const auto mean = [&](size_t i) {  // one that is empty is the worst
    const Choice& choice = choices_[i];
    return choice.logprobs_summed == 0 ? -INFINITY : choice.logprob_sum / static_cast<double>(choice.logprobs_summed);
  };
  std::vector<size_t> best;
  for (auto first = all.begin(); first != all.end(); first += n_) {
    std::stable_sort(first, first + n_, [&](size_t a, size_t b) { return mean(a) > mean(b); });
    best.insert(best.end(), first, first + answered_);
  }
  return best;
}

std::string ApiAnswer::body() const {
  json answer = envelope();
  answer["choices"] = json::array();
  for (const size_t number : answered()) {
    const Choice& choice = choices_[number];
    const size_t i = answer["choices"].size();
    json entry = {{"index", i}, {"logprobs", choice.logprobs}, {"finish_reason", choice.finish}};
    if (chat_)
      entry["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    else
      entry["text"] = choice.text;
    answer["choices"].push_back(entry);
  }
  answer["usage"] = usage();
  return dump(answer);
}

}  // namespace weft::serve::http
