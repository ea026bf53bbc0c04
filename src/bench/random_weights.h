// Random normal weights in the layout of files, cheap however many: a few MB of blocks are made once, and a row of any
// matrix is a run of them from a place of its own on.
//
//   const RandomWeights random(WeightType::q4_0, 0.02f);
//   const ops::WeightSource w = random.source(4096, 4096);   // others that it makes have other rows
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/weight_source.h"

namespace weft::bench {

// bf16, q8_0, q4_0, q4_1, q4_g128: as options name them.
std::span<const std::string> random_weight_names();
WeightType weight_type_from_string(const std::string& name);  // throws Error(invalid_argument)

class RandomWeights {
 public:
  // Throws Error(unsupported) for types that have no name above.
  RandomWeights(WeightType type, float deviation);
  // Throws Error(invalid_argument) for columns that blocks do not divide, or of more than 2^20.
  ops::WeightSource source(int64_t rows, int64_t cols) const;

 private:
  WeightType type_;
  std::shared_ptr<const std::vector<char>> blocks_;
  mutable uint64_t sources_ = 0;
};

}  // namespace weft::bench
