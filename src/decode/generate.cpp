#include "decode/generate.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "decode/text_stream.h"
#include "ops/draw.h"

namespace weft::decode {
namespace {

// Tokens of a forward call: long inputs go in parts, so that activations stay small and a stop is heard.
constexpr size_t kTokensPerStep = 512;

}  // namespace

Answer Generator::answer(ForwardPass::SequenceId sequence, std::span<const int32_t> prompt,
                         const AnswerOptions& options) {
  const int64_t before = forward_.length(sequence);
  check(before + static_cast<int64_t>(prompt.size()) <= options.context, ErrorCode::context_full,
        "the prompt has {} tokens and {} are there already; the context holds {}: shorten it or take a larger context",
        prompt.size(), before, options.context);
  ensure(!prompt.empty(), "a prompt without tokens");

  Answer answer;
  const auto start = Clock::now();
  // Where nothing changes the logits and the greatest is taken, a device may give its id alone.
  const bool is_greedy = sampling_.temperature == 0.f && penalties_.repetition == 1.f && penalties_.presence == 0.f &&
                         penalties_.frequency == 0.f && forward_.finds_ids();
  int32_t next = -1;
  const auto run = [&](std::span<const int32_t> tokens) {
    const ForwardPass::Input input{.sequence = sequence, .tokens = tokens};
    const TokenDraw how{
        .params = sampling_, .random = random_, .penalties = penalties_, .prompt = prompt, .output = answer.ids};
    next = is_greedy ? forward_.run_greedy({&input, 1})[0] : forward_.run_sampled({&input, 1}, {&how, 1})[0];
  };
  const auto draw = [&] {
    check(next >= 0, ErrorCode::invalid_argument,
          "sampling: each of the {} logits is -inf or NaN; see to the model and its input", tokenizer_.vocab_size());
    ops::move_on(sampling_, random_);
    return next;
  };
  for (size_t done = 0; done < prompt.size();) {
    const size_t count = std::min(kTokensPerStep, prompt.size() - done);
    run(prompt.subspan(done, count));
    done += count;
    if (options.stopped() && done < prompt.size()) {
      answer.finish = "interrupted";
      return answer;
    }
  }

  TextStream stream;
  // Right after BOS or the like, a SentencePiece token's leading space is not part of the text.
  bool at_start = tokenizer_.piece(prompt.back(), true).empty();
  auto first_token = Clock::now();
  answer.prefill_s = std::chrono::duration<double>(first_token - start).count();
  for (;;) {
    if (options.stopped()) answer.finish = "interrupted";
    if (static_cast<int64_t>(answer.ids.size()) >= options.max_tokens) answer.finish = "length";
    if (!answer.finish.empty()) break;
    const int32_t id = draw();
    if (answer.ids.empty()) first_token = Clock::now();
    if (tokenizer_.is_end(id)) {
      answer.finish = "end";
      break;
    }
    answer.ids.push_back(id);
    const std::string text = stream.push(at_start ? tokenizer_.decode({&id, 1}) : tokenizer_.piece(id));
    at_start = false;
    answer.text += text;
    options.on_token(id, text);
    if (forward_.length(sequence) >= options.context) {
      answer.finish = "context";
      break;
    }
    if (static_cast<int64_t>(answer.ids.size()) < options.max_tokens) run({&id, 1});
  }
  answer.decode_s = seconds_since(first_token);
  if (const std::string rest = stream.finish(); !rest.empty()) {
    answer.text += rest;
    options.on_token(-1, rest);
  }
  return answer;
}

}  // namespace weft::decode
