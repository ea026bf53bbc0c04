// Logits processors: each checks everything it was given before it changes a logit.
#include <cmath>

#include "base/check.h"
#include "ops/draw.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr size_t kWordBits = 32;

void check_token(std::string_view op, int32_t id, size_t vocab) {
  check(id >= 0 && static_cast<size_t>(id) < vocab, ErrorCode::invalid_token, "{}: token {}; allowed are 0 to {}", op,
        id, static_cast<int64_t>(vocab) - 1);
}

}  // namespace

void apply_token_mask(std::span<float> logits, std::span<const uint32_t> mask) {
  const size_t words = (logits.size() + kWordBits - 1) / kWordBits;
  check(mask.size() == words, ErrorCode::invalid_shape,
        "apply_token_mask: mask has {} words for {} logits; {} are needed, a bit a token", mask.size(), logits.size(),
        words);
  const auto allowed = [&](size_t i) { return (mask[i / kWordBits] >> (i % kWordBits) & 1u) != 0; };
  bool any = false;
  for (size_t i = 0; i < logits.size() && !any; ++i) any = allowed(i) && logits[i] > -INFINITY;
  check(any, ErrorCode::invalid_argument,
        "apply_token_mask: the mask allows no token whose logit is above -inf; the constraint cannot be met from here");
  for (size_t i = 0; i < logits.size(); ++i)
    if (!allowed(i)) logits[i] = -INFINITY;
}

void apply_logit_bias(std::span<float> logits, std::span<const std::pair<int32_t, float>> bias) {
  for (const auto& [id, value] : bias) {
    check_token("apply_logit_bias", id, logits.size());
    check(!std::isnan(value) && value != INFINITY, ErrorCode::invalid_argument,
          "apply_logit_bias: bias of token {} is {}; a finite number or -inf is needed", id, value);
  }
  ops::change_logits(logits, {.bias = bias});
}

void apply_penalties(std::span<float> logits, const Penalties& penalties, std::span<const int32_t> prompt,
                     std::span<const int32_t> output) {
  constexpr std::string_view kOp = "apply_penalties";
  ops::check_penalties(kOp, penalties);
  for (const std::span<const int32_t> tokens : {prompt, output})
    for (const int32_t id : tokens) check_token(kOp, id, logits.size());
  ops::change_logits(logits, {.penalties = penalties, .prompt = prompt, .output = output});
}

}  // namespace weft
