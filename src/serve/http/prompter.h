// How text becomes the tokens of a prompt, and no more of them than a prompt may have: what cannot fit is refused
// before work is done on it, and what turns out not to fit as soon as that is known.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "decode/conversation.h"
#include "weft/model.h"

namespace weft::serve::http {

struct Prompter {
  const Tokenizer& tokenizer;
  const ChatTemplate* chat_template = nullptr;                // null: the model has none
  int64_t most_tokens = std::numeric_limits<int64_t>::max();  // of a prompt
  int64_t context = std::numeric_limits<int64_t>::max();      // of the model

  // All throw Failure(400, context_length_exceeded), which names the field.
  std::vector<int32_t> tokens_of(std::string_view text, const char* field, bool add_special = true) const;
  std::vector<int32_t> tokens_of(const decode::Conversation& conversation, const char* field) const;
  // Each message has a token at least, and so has every so many bytes of text.
  void check_messages(size_t messages, size_t text_bytes, const char* field) const;
  void check_tokens(int64_t least, const char* field) const;
};

}  // namespace weft::serve::http
