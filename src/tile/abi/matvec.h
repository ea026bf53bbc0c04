// How a worker multiplies its share of a line of tiles: in entries of whole tiles, whose partial sums lie in shared
// memory a round at a time. For host and kernel alike (tile/cuda/matvec.h multiplies).
//
//   line of tiles   | band 0          | band 1          | band 2          |
//   the share             |-----------------------------------|
//   entries               |  0  |  1  |  2  |  3  |  4  |  5  |      an entry may hold tiles of several bands
//   rounds                |     round 0     |     round 1     |      of 3 entries: then all threads meet
//   partial sums             c 1   2 3   4     c 1   2   3 4         one for each entry and band; c: carried over
//
// Bands that end in a round are finished behind it. What a round has of a band that goes on is carried into the next
// one, so a band is the sum of its entries in their order, whatever the round: the same bits.
//
// The line is that of one panel of columns, and of one type of weights: bands hold rows of one type, so where a worker
// has tiles of several it has several shares, one behind the other.
#pragma once

#include "tile/abi/divisor.h"

namespace weft::tile {

struct MatvecShare {
  int begin, end;       // the worker's tiles of the line
  Divisor band_tiles;   // tiles of a band
  int tile_cols;        // columns of a tile
  Divisor entry_tiles;  // tiles of every entry but the last
  int round_entries;    // entries of every round but the last
  int rows;             // of x
  int half_parts;       // partial sums that each of two halves of their memory holds: round_parts() at least

  constexpr int size() const { return end - begin; }
  constexpr int first_band() const { return begin / band_tiles; }
  constexpr int num_bands() const { return end > begin ? (end - 1) / band_tiles - first_band() + 1 : 0; }

  constexpr int num_entries() const { return (size() + entry_tiles - 1) / entry_tiles; }
  constexpr int tiles_of(int entry) const {
    const int left = size() - entry * entry_tiles;
    return left < entry_tiles ? left : int{entry_tiles};
  }

  constexpr int num_rounds() const { return (num_entries() + round_entries - 1) / round_entries; }
  constexpr int end_entry(int round) const {
    const int end_of_round = (round + 1) * round_entries, entries = num_entries();
    return end_of_round < entries ? end_of_round : entries;
  }
  constexpr int first_tile(int round) const { return round * round_entries * entry_tiles; }       // of the share
  constexpr int first_band(int round) const { return (begin + first_tile(round)) / band_tiles; }  // of the line

  // Partial sums of a round at most, the carried one first. Along the line either the entry or the band grows, so no
  // two have one place.
  constexpr int round_parts() const {
    const int of_round = round_entries * entry_tiles, tiles = size() < of_round ? size() : of_round;
    if (tiles <= 0) return 0;
    const int entries = (tiles + entry_tiles - 1) / entry_tiles, bands = (tiles + 2 * band_tiles - 2) / band_tiles;
    return entries + bands;
  }
  // Of shared memory, 4-byte aligned. Rounds take turns with the halves: one is finished while the next is multiplied.
  constexpr int parts_bytes() const { return (num_rounds() > 1 ? 2 : 1) * half_parts * rows * 64; }
  // Floats from the begin of partial sums, each [rows, 16]. Bands are those of the line.
  constexpr int carried(int round) const { return round % 2 * half_parts * rows * 16; }
  constexpr int part(int round, int entry, int band) const {
    return carried(round) + (1 + entry - round * round_entries + band - first_band(round)) * rows * 16;
  }
};

}  // namespace weft::tile
