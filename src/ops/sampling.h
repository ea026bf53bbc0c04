// What greedy sampling is made of.
#pragma once

#include <cstdint>
#include <span>

namespace weft::ops {

// The first of the largest logits; -1: all are -inf or NaN.
int32_t first_of_largest(std::span<const float> logits);

}  // namespace weft::ops
