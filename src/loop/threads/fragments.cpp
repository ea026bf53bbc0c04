#include "loop/threads/fragments.h"

namespace weft::loop {
namespace {

constexpr int64_t kWarps = kFragmentThreads / 32, kMostTiles = 32;

}  // namespace

std::optional<Fragment> fragment_of(int64_t rows, int64_t columns) {
  Fragment f{.rows = rows, .columns = columns};
  f.is_turned = rows % kTileRows != 0 || columns % kTileColumns != 0;
  const int64_t m = f.is_turned ? columns : rows, n = f.is_turned ? rows : columns;
  if (rows <= 0 || columns <= 0 || m % kTileRows != 0 || n % kTileColumns != 0) return std::nullopt;
  const int64_t tiles_m = m / kTileRows, tiles_n = n / kTileColumns;
  // As many warps as there are tiles for, and then the fewest operands: of A a tile's, of B those of two tiles at once.
  int64_t least = 0;
  for (int64_t warps_m = 1; warps_m <= kWarps; warps_m *= 2)
    for (int64_t warps_n = 1; warps_m * warps_n <= kWarps; warps_n *= 2) {
      if (tiles_m % warps_m != 0 || tiles_n % warps_n != 0) continue;
      const int64_t idle = kWarps / (warps_m * warps_n);
      const int64_t cost = idle * 1024 + tiles_m / warps_m + (tiles_n / warps_n + 1) / 2;
      if (least != 0 && cost >= least) continue;
      least = cost;
      f.warps_m = warps_m;
      f.warps_n = warps_n;
      f.tiles_m = tiles_m / warps_m;
      f.tiles_n = tiles_n / warps_n;
    }
  if (f.tiles_m * f.tiles_n > kMostTiles) return std::nullopt;
  return f;
}

bool is_fragment_memory(const Stmt& stmt) { return stmt.kind == Stmt::Kind::allocate && stmt.scope == Scope::fragment; }

Stmt registers_of(const Stmt& memory, const Fragment& fragment) {
  Stmt own = make_allocate(memory.name, {fragment.num_pairs() * 2}, memory.dtype, Scope::registers);
  own.scheduled = memory.scheduled;
  return own;
}

}  // namespace weft::loop
