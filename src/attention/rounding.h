// What a backend's arithmetic rounds, as it states it: all that the error model (reference/error_model/) knows of one.
#pragma once

#include <string>

namespace weft::attention {

// Unit roundoffs: half the distance from 1 to the next number.
struct Rounding {
  double sums = 0x1p-24;     // of logits, exponentials, sums over keys, states and whatever nothing else is said of
  double probabilities = 0;  // of p before it multiplies v; 0: p stays as it is
  double vectors = 0;  // of queries, keys and values that hooks changed, before they are multiplied; 0: as of sums

  // Where products are of integers, queries and probabilities become integers too, each row times one scale: half a
  // step off at most, the row's largest number that many steps. 0: they stay as they are.
  double query_steps = 0, probability_steps = 0;
  int probability_tile = 0;  // a row of probabilities has one scale for so many tokens in sequence, at most

  // Where integers are multiplied as subnormal numbers, what products lose follows from the least normal number: a
  // value counts as so many units of its scale, at least.
  double least_units = 0;

  // Functors in the type of kernels: what an error of weft::tanh is, in units of the last place and beside those, and
  // the text of weft::exp, weft::tanh and so on. Without the text they count as exact.
  double tanh_ulps = 0, tanh_absolute = 0;
  std::string math = {};
};

}  // namespace weft::attention
