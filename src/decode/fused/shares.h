// Which of a step's work is a worker's, where a rule says so and no table. For host and kernel alike: the schedule that
// is proven deals by these, and the card's kernel does.
#pragma once

namespace weft::decode::fused {

// Where worker `worker`'s share of `count` things begins; it ends where the next worker's does.
constexpr long long share_begin(long long count, int worker, int workers) { return count * worker / workers; }

// Of the residual's cells: where the share begins that goes with the tiles from `tile` on, of a line of `tiles`. So
// whoever writes some of the residual has tiles of the product whose prologue makes it, and others wait for its sums:
// nobody writes anew what it still reads.
constexpr long long residual_begin(long long cells, long long tile, long long tiles) {
  return (tile * cells + tiles - 1) / tiles;
}

}  // namespace weft::decode::fused
