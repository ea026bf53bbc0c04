// Where the keys or values of a tile lie.
#pragma once

#include "attention/cpu/kernels/prefetcher.h"
#include "attention/cpu/kernels/seen.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// The addresses of tokens [begin, begin + n) of the unit's page list, in a head of keys, values or scales.
void locate_tokens(const UnitView& unit, const TokensView& view, long long head, int begin, int n, const char** rows);

// Tokens [begin, begin + n) of one head of a tile; heads count from the unit's first.
struct Slice {
  const KvTile& tile;
  int stage, head, begin, n;
};

// The rows of keys or of values in the unit's first head: of the tile that is worked on, and of the next one, which is
// fetched meanwhile. Each tile is at stage 0 or 1.
class TileRows {
 public:
  // At most `tokens` rows of `dim` elements. join: latent rows become whole and follow each other, by a copy.
  TileRows(const UnitView& unit, const TokensView& view, int dim, bool join, int tokens, Arena& arena);

  // Finds the rows of a tile.
  void locate(const KvTile& tile, int stage);
  // Copies them where they are to be joined, once the tile is worked on.
  void join(const KvTile& tile, int stage);
  const char* const* at(int stage) const { return rows_[stage]; }
  const char* joined(int stage) const { return joined_[stage]; }
  // Rows that were located, in the order of memory, which is what the machine's own prefetchers follow.
  Prefetcher::Region region(const KvTile& tile, int stage) const;

 private:
  const UnitView& unit_;
  const TokensView& view_;
  const int bytes_;       // of a row
  const char** rows_[2];  // [tokens]
  const char** rope_rows_;
  char* joined_[2];  // [tokens][bytes_]; null: rows lie as they shall
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
