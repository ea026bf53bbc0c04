#include "models/turn_tokens.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace weft {
namespace {

struct TurnToken {
  std::string_view text;
  bool ends = false;  // an answer
  // The token means something else in a vocabulary that has this one.
  std::string_view unless = {};
};
// From the chat templates and tokenizer files of the families named.
constexpr TurnToken kTurnTokens[] = {
    // ChatML: Qwen, SmolLM, Yi and many more
    {"<|im_start|>"},
    {"<|im_end|>", true},
    {"<|endoftext|>", true},
    // Llama 3 and 4
    {"<|begin_of_text|>"},
    {"<|start_header_id|>"},
    {"<|end_header_id|>"},
    {"<|header_start|>"},
    {"<|header_end|>"},
    {"<|eot_id|>", true},
    {"<|eom_id|>", true},
    {"<|eot|>", true},
    {"<|eom|>", true},
    {"<|end_of_text|>", true},
    // Gemma, whose <s> and </s> are HTML's
    {"<bos>"},
    {"<eos>", true},
    {"<start_of_turn>"},
    {"<end_of_turn>", true},
    {"<|turn>"},
    {"<turn|>", true},
    // Llama 2, Mistral
    {"<s>", false, "<bos>"},
    {"</s>", true, "<bos>"},
    {"[INST]"},
    {"[/INST]"},
    // Phi, GLM, Zephyr
    {"<|system|>"},
    {"<|user|>"},
    {"<|assistant|>"},
    {"<|end|>", true, "<|return|>"},  // with <|return|> it ends a message of several
    // gpt-oss
    {"<|start|>"},
    {"<|return|>", true},
    {"<|call|>", true},
    // Granite
    {"<|start_of_role|>"},
    {"<|end_of_role|>"},
    // Command R
    {"<|START_OF_TURN_TOKEN|>"},
    {"<|END_OF_TURN_TOKEN|>", true},
    // DeepSeek
    {"<｜begin▁of▁sentence｜>"},
    {"<｜User｜>"},
    {"<｜Assistant｜>"},
    {"<｜end▁of▁sentence｜>", true},
    // Kimi, SmolVLM, EXAONE, OpenChat, CodeLlama
    {"[BOS]"},
    {"[EOS]", true},
    {"[EOT]", true},
    {"<end_of_utterance>", true},
    {"[|endofturn|]", true},
    {"<|end_of_turn|>", true},
    {"<EOT>", true},
    {"▁<EOT>", true},
};

}  // namespace

void mark_turn_tokens(Vocabulary& vocabulary) {
  constexpr size_t kCount = std::size(kTurnTokens);
  const auto find = [](std::string_view text) {
    return std::find_if(std::begin(kTurnTokens), std::end(kTurnTokens),
                        [&](const TurnToken& token) { return token.text == text; }) -
           std::begin(kTurnTokens);
  };
  std::vector<std::pair<int32_t, size_t>> found;  // tokens and their places in the table
  bool has[kCount] = {};
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.texts[id];
    if (!text.ends_with('>') && !text.ends_with(']')) continue;  // nearly all
    if (const auto at = static_cast<size_t>(find(text)); at < kCount) {
      found.emplace_back(id, at);
      has[at] = true;
    }
  }
  for (const auto& [id, at] : found) {
    const TurnToken& token = kTurnTokens[at];
    if (!token.unless.empty() && has[static_cast<size_t>(find(token.unless))]) continue;
    TokenType& type = vocabulary.types[static_cast<size_t>(id)];
    if (type != TokenType::unknown) type = TokenType::control;
    if (token.ends) vocabulary.ends.push_back(id);
  }
}

}  // namespace weft
