// Draws a token from a row of logits that a request changes first. The same row, params and generator give the same
// token on every machine and device. A sampler is a thread's own.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ops/draw.h"
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
  int32_t draw(std::span<const float> row, const LogitChanges& changes, const SamplingParams& params, Philox& random);
  // The id of a row's greatest logit, as a device has found it, of `size`. Throws so for -1, that of none.
  static int32_t possible(int32_t id, int64_t size);
  // Of the row as it is: of `id`, and the `top` most probable ones.
  TokenLogprob log_probability(std::span<const float> row, int32_t id, int top);

 private:
  std::span<const float> changed(std::span<const float> row, const LogitChanges& changes);

  std::vector<float> changed_;
  ops::RowDraw drawer_;
};

// Numbers of its own for each choice of a request: positions from choice * 2^40 on.
Philox generator_of(uint64_t seed, int choice);

}  // namespace weft::serve
