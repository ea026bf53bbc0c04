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

class Sampler {
 public:
  // By what ops::check_draw takes. Throws Error(invalid_argument) when no token is possible.
  int32_t draw(std::span<const float> row, const TokenDraw& how);
  // The id of a row's greatest logit, as a device has found it, of `size`. Throws so for -1, that of none.
  static int32_t possible(int32_t id, int64_t size);
  // Of the row as it is: of `id`, and the `top` most probable ones.
  TokenLogprob log_probability(std::span<const float> row, int32_t id, int top);

 private:
  ops::RowDraw drawer_;
};

// Numbers of its own for each choice of a request: positions from choice * 2^40 on.
Philox generator_of(uint64_t seed, int choice);

}  // namespace weft::serve
