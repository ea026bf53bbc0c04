// Logits processors: each checks everything it was given before it changes a logit.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "weft/ops.h"

namespace weft {
namespace {

constexpr size_t kWordBits = 32;

void check_token(std::string_view op, int32_t id, size_t vocab) {
  check(id >= 0 && static_cast<size_t>(id) < vocab, ErrorCode::invalid_token, "{}: token {}; allowed are 0 to {}", op,
        id, static_cast<int64_t>(vocab) - 1);
}

// Finite logits stay finite, whatever finite number changes them: none is ruled out, or made certain, by overflow.
// In double, in which no such change overflows.
void change(float& logit, double to) {
  constexpr double kMost = std::numeric_limits<float>::max();
  logit = static_cast<float>(std::isfinite(logit) ? std::clamp(to, -kMost, kMost) : to);
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
  for (const auto& [id, value] : bias) {
    float& logit = logits[static_cast<size_t>(id)];
    if (value == -INFINITY)
      logit = value;
    else
      change(logit, double{logit} + double{value});
  }
}

void apply_penalties(std::span<float> logits, const Penalties& penalties, std::span<const int32_t> prompt,
                     std::span<const int32_t> output) {
  constexpr std::string_view kOp = "apply_penalties";
  check(penalties.repetition > 0.f && std::isfinite(penalties.repetition), ErrorCode::invalid_argument,
        "{}: repetition = {}; a number above 0 is needed, 1 is off", kOp, penalties.repetition);
  check(std::isfinite(penalties.presence) && std::isfinite(penalties.frequency), ErrorCode::invalid_argument,
        "{}: presence = {}, frequency = {}; finite numbers are needed, 0 is off", kOp, penalties.presence,
        penalties.frequency);
  for (const std::span<const int32_t> tokens : {prompt, output})
    for (const int32_t id : tokens) check_token(kOp, id, logits.size());

  if (penalties.repetition == 1.f && penalties.presence == 0.f && penalties.frequency == 0.f) return;
  std::unordered_map<int32_t, int> counts;  // in the output
  for (const int32_t id : output) ++counts[id];
  if (penalties.repetition != 1.f) {
    std::unordered_set<int32_t> seen(prompt.begin(), prompt.end());
    for (const auto& [id, count] : counts) seen.insert(id);
    for (const int32_t id : seen) {
      float& logit = logits[static_cast<size_t>(id)];
      const double repetition = penalties.repetition;
      change(logit, logit > 0.f ? double{logit} / repetition : double{logit} * repetition);
    }
  }
  for (const auto& [id, count] : counts) {
    float& logit = logits[static_cast<size_t>(id)];
    change(logit, double{logit} - (double{penalties.presence} + double{penalties.frequency} * count));
  }
}

}  // namespace weft
