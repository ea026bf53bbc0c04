// Prefill and then one token after another, each handed on as whole characters.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/model.h"
#include "weft/ops.h"

namespace weft::decode {

struct Answer {
  std::vector<int32_t> ids;  // without the token that ended it
  std::string text;          // UTF-8
  std::string finish;        // "end", "length", "context" or "interrupted"
  double prefill_s = 0, decode_s = 0;
  double decode_tok_s() const {  // the first token belongs to prefill
    return ids.size() > 1 && decode_s > 0 ? static_cast<double>(ids.size() - 1) / decode_s : 0;
  }
};

struct AnswerOptions {
  int64_t max_tokens;
  int64_t context;  // tokens that the sequence may hold
  // Gets each id with the characters that it completed, which may be none; -1 with what is left at the end.
  std::function<void(int32_t id, std::string_view text)> on_token;
  std::function<bool()> stopped;  // asked between steps; true ends the answer
};

class Generator {
 public:
  Generator(ForwardPass& forward, const Tokenizer& tokenizer, const SamplingParams& sampling,
            const Penalties& penalties, uint64_t seed)
      : forward_(forward), tokenizer_(tokenizer), sampling_(sampling), penalties_(penalties), random_{seed} {}

  // Appends the prompt to the sequence and answers with at most max_tokens tokens while the sequence holds fewer than
  // `context`. Throws Error(context_full) when the prompt alone does not fit.
  Answer answer(ForwardPass::SequenceId sequence, std::span<const int32_t> prompt, const AnswerOptions& options);

 private:
  ForwardPass& forward_;
  const Tokenizer& tokenizer_;
  SamplingParams sampling_;
  Penalties penalties_;
  Philox random_;
};

}  // namespace weft::decode
