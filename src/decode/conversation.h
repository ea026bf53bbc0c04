// Messages of a chat, as the tokens that a model goes on from.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "weft/model.h"

namespace weft::decode {

class Conversation {
 public:
  // Keeps references to both.
  Conversation(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : tokenizer_(tokenizer), chat_template_(chat_template) {}

  void add(std::string_view role, std::string_view content);
  void drop_last();
  // Further variables for the template, such as enable_thinking: a JSON object. Those that the conversation has itself
  // (kOwnVariables) stay as they are. Throws Error(invalid_argument) for what is no object.
  void set_variables(std::string_view json);
  static constexpr std::array kOwnVariables{"messages", "add_generation_prompt", "bos_token", "eos_token"};
  // The tokens of the whole conversation up to where the model goes on. Throws Error(context_full) for more than
  // `at_most`.
  std::vector<int32_t> tokens(int64_t at_most = std::numeric_limits<int64_t>::max()) const;

 private:
  struct Message {
    std::string role, content;
  };
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  std::vector<Message> messages_;
  std::string variables_ = "{}";
};

}  // namespace weft::decode
