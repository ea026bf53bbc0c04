#include "serve/sampler.h"

#include <cmath>
#include <unordered_map>

#include "base/check.h"

namespace weft::serve {

Philox generator_of(uint64_t seed, int choice) { return {seed, static_cast<uint64_t>(choice) << 40}; }

int32_t Sampler::possible(int32_t id, int64_t size) {
  ops::check_possible("sampling", id >= 0, size);
  return id;
}

std::span<const float> Sampler::changed(std::span<const float> row, const LogitChanges& changes) {
  const Penalties& p = changes.penalties;
  const bool penalised = p.repetition != 1.f || p.presence != 0.f || p.frequency != 0.f;
  if (!penalised && changes.bias.empty() && changes.ruled_out.empty()) return row;
  changed_.assign(row.begin(), row.end());
  if (penalised) {
    std::unordered_map<int32_t, int> counts;
    if (p.repetition != 1.f)
      for (const int32_t id : changes.prompt) counts.emplace(id, 0);
    for (const int32_t id : changes.output) ++counts[id];
    for (const auto& [id, count] : counts) {
      float& logit = changed_[static_cast<size_t>(id)];
      logit = logit > 0.f ? logit / p.repetition : logit * p.repetition;
      if (count > 0) logit -= p.presence + p.frequency * static_cast<float>(count);
    }
  }
  for (const auto& [id, bias] : changes.bias) changed_[static_cast<size_t>(id)] += bias;
  for (const int32_t id : changes.ruled_out) changed_[static_cast<size_t>(id)] = -INFINITY;
  return changed_;
}

int32_t Sampler::draw(std::span<const float> given, const LogitChanges& changes, const SamplingParams& params,
                      Philox& random) {
  const std::span<const float> row = changed(given, changes);
  return possible(drawer_.draw(row, ops::rule_of(params), ops::take_bits(params, random)),
                  static_cast<int64_t>(row.size()));
}

TokenLogprob Sampler::log_probability(std::span<const float> row, int32_t id, int top) {
  const float largest = drawer_.possible_largest("sampling", row);
  const double log_sum = drawer_.log_sum(row, largest);
  const auto of = [&](int32_t token) {
    const float logit = row[static_cast<size_t>(token)];
    if (!(logit > -INFINITY)) return -INFINITY + 0.;
    return (logit == largest ? 0. : static_cast<double>(logit) - static_cast<double>(largest)) - log_sum;
  };
  TokenLogprob result{id, of(id), {}};
  for (const int32_t token : drawer_.largest(row, top)) result.top.emplace_back(token, of(token));
  return result;
}

}  // namespace weft::serve
