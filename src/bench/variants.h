// Variants as a user would write them, with what they read.
#pragma once

#include <string>
#include <vector>

#include "weft/attention.h"
#include "weft/device.h"

namespace weft::bench {

// Tensors of a variant and the numbers in them, 64-byte aligned as an engine's are.
class VariantTensors {
 public:
  void add(const std::string& name, const std::vector<float>& numbers, std::vector<int64_t> shape);
  std::vector<TensorArg> args() const;

 private:
  struct Held {
    std::string name;
    Workspace numbers;
    std::vector<int64_t> shape;
  };
  std::vector<Held> held_;
};

// Queries and keys turned where they are read: tables cos and sin [positions, head_dim / 2].
Variant rope_inside();
VariantTensors rope_tables(int positions, int head_dim);

// RMS norm of queries and keys where they are read: weights q_weight and k_weight [head_dim].
Variant qk_norm_inside();

// Linear attention with decay: no softmax; log2_decay [num_qo_heads].
Variant decay();

// A soft cap and a bias, for each number a text that nobody has compiled before; scalar cap.
Variant new_variant(int number);

}  // namespace weft::bench
