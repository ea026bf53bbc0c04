// What a spec means before any target sees it: which are allowed, their intervals, and what run expects of them.
#pragma once

#include <vector>

#include "weft/attention.h"

namespace weft {

// Throws Error(unsupported | invalid_argument) naming the field, its value and what is allowed.
void validate(const AttentionSpec& spec);

// Intervals of mask, sliding window and variant together. Throws Error(unsupported) when both have two.
std::vector<Interval> combined_intervals(const AttentionSpec& spec);

// Every scalar and tensor that run expects, in the order of their slots: the variant's, then the mask's.
struct Declarations {
  std::vector<ScalarDecl> scalars;
  std::vector<TensorDecl> tensors;
};
Declarations declarations(const AttentionSpec& spec);

}  // namespace weft
