#include "serve/http/prompter.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

[[noreturn]] void refuse(const Prompter& prompter, const char* field) {
  const int64_t most = prompter.most_tokens;
  Failure failure = failure_of_code(
      std::string(to_string(ErrorCode::context_full)),
      most < prompter.context
          ? fmt::format("{}: has more than {} tokens; this server allows {} of a prompt", field, most, most)
          : fmt::format("{}: has more than {} tokens; this model's maximum context length is {} tokens: shorten it",
                        field, most, most));
  failure.param = field;
  failure.limit = Limit::max_prompt_tokens;
  throw Failure(failure);
}

// What encoding gives, which ends early where that is too much.
template <class Encode>
std::vector<int32_t> within(const Prompter& prompter, const char* field, Encode&& encode) {
  try {
    return encode();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::context_full) refuse(prompter, field);
    throw;
  }
}

}  // namespace

std::vector<int32_t> Prompter::tokens_of(std::string_view text, const char* field, bool add_special) const {
  return within(*this, field,
                [&] { return tokenizer.encode(text, {.add_special = add_special, .at_most = most_tokens}); });
}

std::vector<int32_t> Prompter::tokens_of(const decode::Conversation& conversation, const char* field) const {
  return within(*this, field, [&] { return conversation.tokens(most_tokens); });
}

void Prompter::check_messages(size_t messages, size_t text_bytes, const char* field) const {
  check_tokens(std::max(static_cast<int64_t>(messages), tokenizer.least_tokens(text_bytes)), field);
}

void Prompter::check_tokens(int64_t least, const char* field) const {
  if (least > most_tokens) refuse(*this, field);
}

}  // namespace weft::serve::http
