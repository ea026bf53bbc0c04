#include "decode/conversation.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace weft::decode {

void Conversation::add(std::string_view role, std::string_view content) {
  messages_.push_back({std::string(role), std::string(content)});
}

void Conversation::drop_last() {
  ensure(!messages_.empty(), "a conversation without messages");
  messages_.pop_back();
}

void Conversation::set_variables(std::string_view json) {
  check(nlohmann::json::parse(json, nullptr, false).is_object(), ErrorCode::invalid_argument,
        "variables = {}; a JSON object is needed", json.substr(0, 60));
  variables_ = json;
}

std::vector<int32_t> Conversation::tokens(int64_t at_most) const {
  const auto text_of = [&](int32_t id) { return id < 0 ? std::string() : tokenizer_.piece(id, false); };
  nlohmann::json messages = nlohmann::json::array();
  for (const Message& message : messages_) messages.push_back({{"role", message.role}, {"content", message.content}});
  nlohmann::json context = nlohmann::json::parse(variables_);
  context.update({{"messages", messages},
                  {"add_generation_prompt", true},
                  {"bos_token", text_of(tokenizer_.bos())},
                  {"eos_token", text_of(tokenizer_.eos())}});
  // Text that is not UTF-8 shows as U+FFFD: JSON cannot hold it.
  const std::string text =
      chat_template_.render(context.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::vector<int32_t> ids = tokenizer_.encode(text, {.add_special = false, .parse_special = true, .at_most = at_most});
  // Some templates write BOS themselves.
  if (tokenizer_.adds_bos() && (ids.empty() || ids.front() != tokenizer_.bos()))
    ids.insert(ids.begin(), tokenizer_.bos());
  return ids;
}

}  // namespace weft::decode
