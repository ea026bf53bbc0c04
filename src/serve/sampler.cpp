// Compiled without contraction: the same bits on every machine.
#include "serve/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "serve/kernels/row.h"
#include "weft/device.h"

namespace weft::serve {
namespace {

constexpr size_t kBlock = RowTable::kBlock;

const RowTable& loops() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(row_loops)
    default: throw InternalError("an instruction set without loops over logits");
  }
}

long long length(std::span<const float> row) { return static_cast<long long>(row.size()); }

int32_t first_with(std::span<const float> row, float value) {
  return static_cast<int32_t>(loops().first_equal(row.data(), length(row), value));
}

// Weights, 0 to 1, are in the order of their bits.
constexpr uint32_t kOne = 0x3f800000;
uint32_t bits_of(float weight) { return std::bit_cast<uint32_t>(weight); }
float of_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

void check_possible(bool is_possible, int64_t size) {
  check(is_possible, ErrorCode::invalid_argument,
        "logits: each of the {} is -inf or NaN; leave a token possible, or see to the model and its input", size);
}

float possible_largest(std::span<const float> row) {
  const float largest = loops().largest(row.data(), length(row));
  check_possible(largest > -INFINITY, static_cast<int64_t>(row.size()));
  return largest;
}

}  // namespace

std::mt19937_64 generator_of(uint64_t seed, int choice) {
  std::seed_seq both{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(choice)};
  return std::mt19937_64(both);
}

int32_t Sampler::possible(int32_t id, int64_t size) {
  check_possible(id >= 0, size);
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

// exp(scale * (logit - largest)); what is impossible weighs nothing, and beside an infinite logit only its equals
// weigh.
void Sampler::weigh(std::span<const float> row, float largest, float scale) {
  weights_.resize(row.size());
  if (std::isfinite(largest)) {
    loops().weigh(row.data(), length(row), largest, scale, weights_.data());
  } else {
    for (size_t i = 0; i < row.size(); ++i) weights_[i] = row[i] == largest ? 1.f : 0.f;
  }
  sum_blocks(0.f);
}

// The sums and the largest of blocks, of weights that are at least so large.
void Sampler::sum_blocks(float least) {
  const size_t blocks = (weights_.size() + kBlock - 1) / kBlock;
  block_sums_.resize(blocks);
  block_most_.resize(blocks);
  loops().sum_blocks(weights_.data(), length(weights_), least, block_sums_.data(), block_most_.data());
  sum_ = 0;
  for (const double sum : block_sums_) sum_ += sum;
}

// Where the share ends: the tokens from `high` on have less than `wanted`, those from `low` on have it, and few are
// between. Each pass over the weights cuts what is between into nine, the first one by two octaves.
Sampler::ShareEnd Sampler::end_of_share(double wanted) const {
  constexpr int kLimits = RowTable::kLimits;
  constexpr double kFew = 128;
  ShareEnd end{.low = 0, .high = kOne + 1, .kept = 0};
  double reached = sum_;
  for (bool first = true; end.high - end.low > 1; first = false) {
    if (reached - end.kept <= kFew * static_cast<double>(of_bits(end.low))) break;
    float limits[kLimits];
    double sums[kLimits];
    for (int k = 0; k < kLimits; ++k) {
      const auto part = static_cast<uint64_t>(k) + 1;
      limits[k] = first ? std::ldexp(1.f, -2 * (k + 1))
                        : of_bits(end.high - static_cast<uint32_t>((end.high - end.low) * part / (kLimits + 1)));
    }
    loops().sum_from(weights_.data(), length(weights_), limits, sums);
    for (int k = 0; k < kLimits; ++k) {
      if (sums[k] >= wanted) {
        end.low = bits_of(limits[k]);
        reached = sums[k];
        break;
      }
      end.high = bits_of(limits[k]);
      end.kept = sums[k];
    }
  }
  return end;
}

// The least weight of the most probable tokens that have this share of all weights. Sorting them would take long where
// the distribution is flat: only those where it ends are sorted. Of equals the least ids are kept, the others weigh
// nothing from here on.
float Sampler::least_of_share(double share) {
  const double wanted = share * sum_;
  const auto [low, high, before] = end_of_share(wanted);
  selected_.resize(weights_.size());
  const long long count = loops().select(weights_.data(), length(weights_), of_bits(std::max(low, 1u) - 1),
                                         of_bits(high - 1), selected_.data());
  candidates_.clear();
  for (const int id : std::span(selected_).first(static_cast<size_t>(count)))
    candidates_.push_back({id, weights_[static_cast<size_t>(id)]});
  std::sort(candidates_.begin(), candidates_.end(), is_more_probable);
  float least = of_bits(high);  // should rounding leave nothing to take here: what is larger
  double kept = before;
  for (const Candidate& c : candidates_) {
    if (kept >= wanted) {
      if (c.weight < least) break;
      weights_[static_cast<size_t>(c.id)] = 0.f;
      continue;
    }
    kept += static_cast<double>(c.weight);
    least = c.weight;
  }
  return least;
}

// Tokens of at least this weight, in order of ids.
void Sampler::collect(float least) {
  candidates_.clear();
  for (size_t block = 0; block < block_most_.size(); ++block) {
    if (block_most_[block] < least) continue;
    const size_t end = std::min(weights_.size(), (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i)
      if (weights_[i] >= least && weights_[i] > 0.f) candidates_.push_back({static_cast<int32_t>(i), weights_[i]});
  }
}

// top_k, top_p, min_p in this order, or min_p alone. Candidates are collected down to a weight that is lowered until
// enough are there.
void Sampler::filter(const SamplingParams& params) {
  const auto wanted = static_cast<size_t>(params.top_k);
  const bool by_share = params.top_p < 1.f && params.filter_order == FilterOrder::joint;
  for (float least = params.top_k == 0 ? params.min_p : 0.01f;; least = least > 1e-30f ? least * 1e-3f : 0.f) {
    collect(least);
    if (params.top_k == 0 || least == 0.f || candidates_.size() >= wanted) break;
  }
  std::sort(candidates_.begin(), candidates_.end(), is_more_probable);
  if (params.top_k > 0 && candidates_.size() > wanted) candidates_.resize(wanted);
  if (params.top_p < 1.f) {
    double all = sum_;
    if (params.top_k > 0 && !by_share) {
      all = 0;
      for (const Candidate& c : candidates_) all += static_cast<double>(c.weight);
    }
    double kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < static_cast<double>(params.top_p) * all))
      kept += static_cast<double>(candidates_[count++].weight);
    candidates_.resize(count);
  }
  while (candidates_.back().weight < params.min_p) candidates_.pop_back();  // the first weighs 1
}

// From all tokens of at least this weight, of which the sums of blocks are: the block first, then within it.
int32_t Sampler::draw_any(double uniform, float least) const {
  double left = uniform * sum_;
  size_t block = 0;
  while (block + 1 < block_sums_.size() && left >= block_sums_[block]) left -= block_sums_[block++];
  const size_t end = std::min(weights_.size(), (block + 1) * kBlock);
  int32_t last = -1;
  for (size_t i = block * kBlock; i < end; ++i) {
    if (weights_[i] <= 0.f || weights_[i] < least) continue;
    last = static_cast<int32_t>(i);
    if ((left -= static_cast<double>(weights_[i])) < 0) break;
  }
  return last;
}

int32_t Sampler::draw(std::span<const float> given, const LogitChanges& changes, const SamplingParams& params,
                      std::mt19937_64& generator) {
  const std::span<const float> row = changed(given, changes);
  const float largest = possible_largest(row);
  if (params.temperature == 0.f) return first_with(row, largest);
  weigh(row, largest, 1.f / std::max(params.temperature, 1e-30f));
  const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
  if (params.top_k == 0 && (params.top_p < 1.f || params.min_p <= 0.f)) {
    float least = 0.f;
    if (params.top_p < 1.f) {
      least = std::max(least_of_share(static_cast<double>(params.top_p)), params.min_p);
      sum_blocks(least);
    }
    const int32_t id = draw_any(uniform, least);
    return id >= 0 ? id : first_with(row, largest);
  }
  filter(params);
  double mass = 0;
  for (const Candidate& c : candidates_) mass += static_cast<double>(c.weight);
  double left = uniform * mass;
  for (const Candidate& c : candidates_)
    if ((left -= static_cast<double>(c.weight)) < 0) return c.id;
  return candidates_.back().id;
}

TokenLogprob Sampler::log_probability(std::span<const float> row, int32_t id, int top) {
  const float largest = possible_largest(row);
  weigh(row, largest, 1.f);
  const double log_sum = std::log(sum_);
  const auto of = [&](int32_t token) {
    const float logit = row[static_cast<size_t>(token)];
    if (!(logit > -INFINITY)) return -INFINITY + 0.;
    return (logit == largest ? 0. : static_cast<double>(logit) - static_cast<double>(largest)) - log_sum;
  };
  TokenLogprob result{id, of(id), {}};
  if (top > 0) {
    filter({.temperature = 1.f, .top_k = top});
    for (const Candidate& c : candidates_) result.top.emplace_back(c.id, of(c.id));
  }
  return result;
}

}  // namespace weft::serve
