// A tile's scores, and the probabilities that become of them.
#pragma once

#include "attention/cpu/kernels/states.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

class Scores {
 public:
  // Of `heads` heads at a time, all or one, with rows `ld` apart.
  Scores(const States& states, const Columns& columns, int heads, long long ld, Arena& arena);

  // Those of a head, [group_rows][ld].
  float* of(int head) const { return scores_ + held(head) * head_floats_; }
  long long ld() const { return ld_; }
  // Heads whose scores are held at once, and the place of a head among them.
  int held_heads() const { return held_heads_; }
  int held(int head) const { return held_heads_ > 1 ? head : 0; }
  // Scores of these heads become probabilities; m, l and alpha of their states move on.
  void to_probabilities(const KvTile& tile, int first_head, int heads) const;

  // Probabilities of a head as its values' products take them, from a token on: fp32, or in bf16 pairs.
  const float* probs(int head, int token) const {
    return probs_ ? reinterpret_cast<const float*>(probs_ + held(head) * head_floats_ + token) : of(head) + token;
  }
  float prob(int head, int row, int token) const;

 private:
  bool mask_by_bits(const KvTile& tile, int first_head, int heads, float scale) const;

  const UnitView& unit_;
  const States& states_;
  const Columns& columns_;
  const int held_heads_;
  const long long ld_, head_floats_;
  float* scores_;
  unsigned short* probs_;   // the same, rounded, for products in bf16; else null
  unsigned char* visible_;  // [tokens] columns that the bits of their pages show to one row
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
