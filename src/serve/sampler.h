// Draws a token from a row of logits: one pass for the largest, one for the weights in fp32, and then only what the
// filters may keep. The same row, params and generator give the same token on every machine. A sampler is a thread's
// own.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "weft/ops.h"
#include "weft/serve.h"

namespace weft::serve {

// What changes the logits of a row besides the model.
struct LogitChanges {
  std::span<const std::pair<int32_t, float>> bias = {};
  Penalties penalties = {};
  std::span<const int32_t> prompt = {}, output = {};
  std::span<const int32_t> ruled_out = {};  // token ids
};

class Sampler {
 public:
  // Params as weft::sample takes them (weft/ops.h), and checked there.
  // Throws Error(invalid_argument) when no token is possible.
  int32_t draw(std::span<const float> row, const LogitChanges& changes, const SamplingParams& params,
               std::mt19937_64& generator);
  // The id of a row's greatest logit, as a device has found it, of `size`. Throws so for -1, that of none.
  static int32_t possible(int32_t id, int64_t size);
  // Of the row as it is: of `id`, and the `top` most probable ones.
  TokenLogprob log_probability(std::span<const float> row, int32_t id, int top);

 private:
  struct Candidate {
    int32_t id;
    float weight;
  };
  static bool is_more_probable(const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  }
  std::span<const float> changed(std::span<const float> row, const LogitChanges& changes);
  void weigh(std::span<const float> row, float largest, float scale);
  void sum_blocks(float least);
  struct ShareEnd {
    uint32_t low, high;  // bits of weights
    double kept;         // the sum of those from `high` on
  };
  ShareEnd end_of_share(double wanted) const;
  float least_of_share(double share);
  void collect(float least);
  void filter(const SamplingParams& params);
  int32_t draw_any(double uniform, float least) const;

  std::vector<float> changed_;
  std::vector<float> weights_;
  std::vector<double> block_sums_;
  std::vector<float> block_most_;
  double sum_ = 0;
  std::vector<int> selected_;
  std::vector<Candidate> candidates_;
};

// A generator of its own for each choice of a request.
std::mt19937_64 generator_of(uint64_t seed, int choice);

}  // namespace weft::serve
