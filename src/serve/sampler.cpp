#include "serve/sampler.h"

#include <cmath>

namespace weft::serve {

Philox generator_of(uint64_t seed, int choice) { return {seed, static_cast<uint64_t>(choice) << 40}; }

int32_t Sampler::possible(int32_t id, int64_t size) {
  ops::check_possible("sampling", id >= 0, size);
  return id;
}

int32_t Sampler::draw(std::span<const float> row, const TokenDraw& how) {
  return possible(drawer_.draw(row, how), static_cast<int64_t>(row.size()));
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
