// Messages of a chat, as the tokens that a model goes on from.
#pragma once

#include <cstdint>
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
  // The tokens of the whole conversation up to where the model goes on.
  std::vector<int32_t> tokens() const;

 private:
  struct Message {
    std::string role, content;
  };
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  std::vector<Message> messages_;
};

}  // namespace weft::decode
