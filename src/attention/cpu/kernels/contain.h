// Values that are not finite reach only rows whose intervals hold their slots. A row that does not see a column has
// p = 0 there, but 0 times NaN is NaN: in tiles that rows see differently the products take such values for zeros, and
// rows that see them get them afterwards. That is done when a state shows the need: a second pass over the item, so
// that finite values pay one look at its output.
#pragma once

#include "attention/cpu/kernels/kv_source.h"
#include "attention/cpu/kernels/scores.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

class NonFinite {
 public:
  NonFinite(const UnitView& unit, const Seen* seen, const Columns& columns, KvSource& values, int tokens, Arena& arena);

  // Whether the item has to be worked on again, from here on with such values contained.
  bool start(const States& states);
  // Finds the tile's, and lets probabilities stand as they are for their tokens.
  void find(const KvTile& tile, int stage);
  // Rows of values for the products.
  KvSource::Rows rows(const Slice& slice) const;
  bool contains(const KvTile& tile) const { return active_ && tile.boundary; }
  // Adds those of a head to the rows that see them, element d to column columns[d] of o.
  void add(const KvTile& tile, int stage, int head, const Scores& scores, const float* columns, States& states) const;

 private:
  const UnitView& unit_;
  const Seen* seen_;
  const Columns& columns_;
  KvSource& values_;
  const int tokens_;
  bool active_ = false;
  unsigned char* found_;  // [heads][tokens]
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
