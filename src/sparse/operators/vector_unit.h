// What schedules of ready operators fit themselves to: vectors and registers of a CPU, or a card.
#pragma once

#include <compare>
#include <cstdint>

#include "weft/device.h"

namespace weft::sparse {

// Lanes of fp32 in a vector, and vectors in registers.
struct VectorUnit {
  int64_t lanes = 16, registers = 32;
  bool is_of_card = false;  // then schedules bind rows to CTAs and features to threads (card.h)
  // Of a card:
  bool has_mma = true;                // tensor cores that take bf16
  int64_t num_multiprocessors = 132;  // as an H200 has, where no card is asked
};
VectorUnit vector_unit(Isa isa);
VectorUnit vector_unit(Device device);  // of this CPU, or of a card from sm_80 on
VectorUnit unit_of(Device device);      // of this CPU, or of this card. Throws as machine() does.

// What a search varies of a schedule for cards; 0: as tends to be best.
struct CardCut {
  int64_t vector = 0;  // most features that a lane has at once; 0: 16 bytes of them
  int64_t rows = 0;    // rows, or elements, side by side in a CTA; 0: as many as 256 threads have
  int64_t ahead = 0;   // elements of a row whose gathers are on their way; 0: four
  int64_t each = 0;    // elements of a thread: of a row's piece, or of dot products, whose rows it loads together
  friend auto operator<=>(const CardCut&, const CardCut&) = default;
};

// A row of `feat` features in vectors: `lanes` of each, 1 where there is no vector of them; how many of a row are kept
// in registers at once, of `rows` rows.
struct RowTiles {
  int64_t lanes = 1, vectors = 1;
};
RowTiles row_tiles(int64_t feat, const VectorUnit& unit, int64_t rows = 1);

}  // namespace weft::sparse
