// Arguments of the kernel of a deep linear network, and how its shared memory is cut, for host and kernel alike.
#pragma once

#include "decode/fused/cuda/kernels/stuck.h"
#include "tile/abi/matvec.h"

namespace weft::decode::fused {

inline constexpr int kMostWarps = 16;  // that multiply; one more copies

struct DeepLinearArgs {
  const void* weights = nullptr;  // [layers, tiles]: tile/cuda/matvec.h
  const float* x = nullptr;       // [rows, n], what the first layer multiplies; null: the sums of phase first_phase
  float* sums = nullptr;          // [2, slots, rows, 16]: sums of phase p at p % 2
  unsigned long long* tagged = nullptr;  // the same beside phases
  unsigned* arrived = nullptr;           // workers at edges
  unsigned long long* stuck = nullptr;   // [workers], 0
  const int* borders = nullptr;          // [workers + 1]: worker w has tiles [borders[w], borders[w + 1])
  const int* worker_slot = nullptr;      // [workers]: of the worker's first tile
  const int* first_slot = nullptr;       // [n / 16 + 1]: of each band
  unsigned long long limit_ns = 0;       // that a wait may take; 0: forever
  unsigned first_phase = 0;              // of launches before
  int layers = 0, n = 0, rows = 0, workers = 0, slots = 0;
  int most_pieces = 0;  // slots of a band, at most
  int tile_cols = 0, tile_bytes = 0, band_tiles = 0, entry_tiles = 0;
  int round_entries = 0;                  // whose partial sums lie in shared memory at once
  int half_parts = 0, parts_bytes = 0;    // of partial sums in shared memory (tile/abi/matvec.h), of a worker at most
  int entries = 0, entry_bytes = 0;       // of the ring
  int ahead_bytes = 0, beside_bytes = 0;  // in flight: tile/cuda/ring.h
  float scale = 0;                        // of what a layer multiplies
  bool overlaps = false;                  // weights are copied while others still work on the phase before
};

constexpr tile::MatvecShare share_of(const DeepLinearArgs& args, int begin, int end) {
  return {begin,          end, args.band_tiles, args.tile_cols, args.entry_tiles, args.round_entries, args.rows,
          args.half_parts};
}

// Bytes of a CTA's shared memory from its begin on; the ring lies first.
struct DeepLinearLayout {
  int parts, first_slot, x, stopped, bytes;
  int ldx;  // elements of a row of x: 8 rows lie in different banks
};
constexpr DeepLinearLayout layout_of(const DeepLinearArgs& args) {
  DeepLinearLayout layout{};
  layout.parts = (args.entries * (args.entry_bytes + 28) + 4 + 15) / 16 * 16;
  layout.first_slot = layout.parts + args.parts_bytes;
  layout.x = (layout.first_slot + 4 * (args.n / 16 + 1) + 15) / 16 * 16;
  layout.ldx = (args.n + 63) / 64 * 64 + 16;
  layout.stopped = layout.x + 2 * layout.ldx * args.rows;
  layout.bytes = layout.stopped + 12;
  return layout;
}

}  // namespace weft::decode::fused
