// Which keys the rows of a unit see.
#pragma once

#include "attention/cpu/kernels/arena.h"
#include "attention/cpu/kernels/unit_view.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// The positions that one query token sees: [lower[0], upper[0]) and [lower[1], upper[1]); an empty one is [0, 0).
struct Seen {
  int lower[2], upper[2];
};

inline bool sees(const Seen& seen, int pos) {
  return (pos >= seen.lower[0] && pos < seen.upper[0]) || (pos >= seen.lower[1] && pos < seen.upper[1]);
}

// Of a query token at position q_pos, by the intervals of the plan.
Seen seen_by(const PlanHeader& plan, int q_pos, int kv_len);

// Positions of tokens [begin, begin + n) of a page list.
void find_positions(const PlanHeader& plan, const PageList& list, int begin, int n, int* positions);

// A tile of keys: tokens [begin, begin + n) of the unit's page list.
struct KvTile {
  int begin, n;
  bool boundary;  // some row does not see some column, or n is no multiple of kColumnStep
};

// Walks the tiles of an item, leaving out those that no row sees. Tiles start at multiples of `step` from the item's
// first key, and are cut to what some row sees, at multiples of kColumnStep.
class TileCursor {
 public:
  TileCursor(const UnitView& unit, const Seen* seen, int begin, int end, int step)
      : unit_(unit), seen_(seen), end_(end), step_(step), next_(begin) {}

  // False where none is left.
  bool next(KvTile& tile);

 private:
  bool classify(KvTile& tile) const;
  bool all_seen(const KvTile& tile) const;
  void check(const KvTile& tile, int low, int high, bool all) const;

  const UnitView& unit_;
  const Seen* seen_;
  int end_, step_, next_;
};

// The columns of a tile of scores: where their tokens stand, and which of them any row sees.
class Columns {
 public:
  Columns(const UnitView& unit, const Seen* seen, int tokens, Arena& arena);
  // From here on of this tile.
  void set(const KvTile& tile);

  int* positions;           // [tokens] -1 behind the last token; not known where no hook asks and every row sees all
  unsigned char* marks;     // [tokens] of a boundary tile: some row sees the column
  abi::VectorRow* vectors;  // [tokens] what key and value hooks are told

 private:
  const UnitView& unit_;
  const Seen* seen_;
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
