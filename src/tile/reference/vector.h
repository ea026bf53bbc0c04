// The old vector as the reference's vector hooks see it (tile/variant/vectors.h).
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

struct Vec {
  const real *data, *pairs;
  int dim;
  real sum, sum_of_squares;
  real operator[](int i) const { return data[i]; }
  int size() const { return dim; }
  real partner(int i) const { return pairs[i]; }
  real total() const { return sum; }
  real squares() const { return sum_of_squares; }
  real product(TensorRow<float> row) const {
    real result = 0;
    for (int i = 0; i < dim; ++i) result += data[i] * row[i];
    return result;
  }
};

}  // namespace weft
