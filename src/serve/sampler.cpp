// Compiled without contraction, in baseline vectors: the same bits on every machine.
#include "serve/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

#include "base/check.h"

namespace weft::serve {
namespace {

constexpr size_t kBlock = 256;  // tokens whose weights are summed apart

// exp(x) for x <= 0 within 2e-7 relative, 0 below -87; plain arithmetic, so that the compiler makes vectors of it.
inline float exp_of_negative(float x) {
  const float held = x < -87.f ? -87.f : x;
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = held * 1.44269504f + kMagic, n = shifted - kMagic;
  const float r = (held - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.f / 5040.f;
  for (const float c : {1.f / 720.f, 1.f / 120.f, 1.f / 24.f, 1.f / 6.f, 0.5f, 1.f, 1.f}) p = p * r + c;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kMagic) + 127u) << 23;
  return x < -87.f ? 0.f : p * std::bit_cast<float>(power);
}

// NaN counts as -inf. Sixteen running maxima, so that the compiler makes vectors of them.
float largest_of(std::span<const float> row) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -INFINITY);
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = row[i + lane] > lanes[lane] ? row[i + lane] : lanes[lane];
  for (; i < row.size(); ++i) lanes[0] = row[i] > lanes[0] ? row[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

int32_t first_with(std::span<const float> row, float value) {
  return static_cast<int32_t>(std::find(row.begin(), row.end(), value) - row.begin());
}

// Of weights from 1 down to 0: 32 sizes an octave, the largest first.
constexpr uint32_t kOne = 0x3f800000;
constexpr int kSizeShift = 18;
constexpr size_t kSizes = (kOne >> kSizeShift) + 1;
size_t size_of(float weight) { return (kOne - std::bit_cast<uint32_t>(weight)) >> kSizeShift; }
float largest_of_size(size_t size) { return std::bit_cast<float>(kOne - (static_cast<uint32_t>(size) << kSizeShift)); }

float possible_largest(std::span<const float> row) {
  const float largest = largest_of(row);
  check(largest > -INFINITY, ErrorCode::invalid_argument,
        "logits: each of the {} is -inf or NaN; leave a token possible, or see to the model and its input", row.size());
  return largest;
}

}  // namespace

std::mt19937_64 generator_of(uint64_t seed, int choice) {
  std::seed_seq both{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(choice)};
  return std::mt19937_64(both);
}

void Sampler::change(std::span<float> row, const LogitChanges& changes) {
  saved_.clear();
  const auto set = [&](int32_t id, float logit) {
    saved_.push_back({id, row[static_cast<size_t>(id)]});
    row[static_cast<size_t>(id)] = logit;
  };
  const Penalties& p = changes.penalties;
  if (p.repetition != 1.f || p.presence != 0.f || p.frequency != 0.f) {
    std::unordered_map<int32_t, int> counts;
    if (p.repetition != 1.f)
      for (const int32_t id : changes.prompt) counts.emplace(id, 0);
    for (const int32_t id : changes.output) ++counts[id];
    for (const auto& [id, count] : counts) {
      float logit = row[static_cast<size_t>(id)];
      logit = logit > 0.f ? logit / p.repetition : logit * p.repetition;
      if (count > 0) logit -= p.presence + p.frequency * static_cast<float>(count);
      set(id, logit);
    }
  }
  for (const auto& [id, bias] : changes.bias) set(id, row[static_cast<size_t>(id)] + bias);
  for (const int32_t id : changes.ruled_out) set(id, -INFINITY);
}

void Sampler::restore(std::span<float> row) {
  for (size_t i = saved_.size(); i-- > 0;) row[static_cast<size_t>(saved_[i].id)] = saved_[i].logit;
}

// exp(scale * (logit - largest)); what is impossible weighs nothing, and beside an infinite logit only its equals weigh.
void Sampler::weigh(std::span<const float> row, float largest, float scale) {
  weights_.resize(row.size());
  if (std::isfinite(largest)) {
    for (size_t i = 0; i < row.size(); ++i) {
      const float weight = exp_of_negative((row[i] - largest) * scale);
      weights_[i] = row[i] >= -3.4e38f ? weight : 0.f;
    }
  } else {
    for (size_t i = 0; i < row.size(); ++i) weights_[i] = row[i] == largest ? 1.f : 0.f;
  }
  sum_blocks(0.f);
}

// The sums and the largest of blocks, of weights that are at least so large.
void Sampler::sum_blocks(float least) {
  block_sums_.clear();
  block_most_.clear();
  sum_ = 0;
  for (size_t begin = 0; begin < weights_.size(); begin += kBlock) {
    const auto block = std::span(weights_).subspan(begin, std::min(kBlock, weights_.size() - begin));
    float lanes[16] = {};
    size_t i = 0;
    for (; i + 16 <= block.size(); i += 16)
      for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += block[i + lane] >= least ? block[i + lane] : 0.f;
    for (; i < block.size(); ++i) lanes[0] += block[i] >= least ? block[i] : 0.f;
    double sum = 0;
    for (const float lane : lanes) sum += static_cast<double>(lane);
    block_sums_.push_back(sum);
    block_most_.push_back(largest_of(block));
    sum_ += block_sums_.back();
  }
}

// The least weight of the most probable tokens that have this share of all weights. Sorting them would take long where the
// distribution is flat, so weights are summed by their size first, and only those of the size in which the share ends are
// sorted. Of equals the least ids are kept: the others weigh nothing from here on.
float Sampler::least_of_share(double share) {
  mass_by_size_.assign(2 * kSizes, 0.);
  for (size_t i = 0; i < weights_.size(); ++i)  // neighbours apart: an addition need not wait for the one before it
    mass_by_size_[2 * size_of(weights_[i]) + i % 2] += static_cast<double>(weights_[i]);
  const double wanted = share * sum_;
  double kept = 0;
  size_t size = 0;
  for (; size + 1 < kSizes; ++size) {
    const double mass = mass_by_size_[2 * size] + mass_by_size_[2 * size + 1];
    if (kept + mass >= wanted) break;
    kept += mass;
  }
  const float largest = largest_of_size(size), above = size + 1 < kSizes ? largest_of_size(size + 1) : 0.f;
  candidates_.clear();
  for (size_t i = 0; i < weights_.size(); ++i)
    if (weights_[i] > above && weights_[i] <= largest) candidates_.push_back({static_cast<int32_t>(i), weights_[i]});
  std::sort(candidates_.begin(), candidates_.end(), is_more_probable);
  float least = largest;  // should rounding leave nothing to take here: what is larger
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

// top_k, top_p, min_p in this order, or min_p alone. Candidates are collected down to a weight that is lowered until enough
// are there.
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

int32_t Sampler::draw_changed(std::span<const float> row, const SamplingParams& params, std::mt19937_64& generator) {
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

int32_t Sampler::draw(std::span<float> row, const LogitChanges& changes, const SamplingParams& params,
                      std::mt19937_64& generator) {
  struct Restore {
    Sampler& sampler;
    std::span<float> row;
    ~Restore() { sampler.restore(row); }
  } restore_after{*this, row};
  change(row, changes);
  return draw_changed(row, params, generator);
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
