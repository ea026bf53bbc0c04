// Which of a step's work is a worker's, where a rule says so and no table. For host and kernel alike: the schedule that
// is proven deals by these, and the card's kernel does.
#pragma once

namespace weft::decode::fused {

// Where worker `worker`'s share of `count` things begins; it ends where the next worker's does.
constexpr long long share_begin(long long count, int worker, int workers) { return count * worker / workers; }

}  // namespace weft::decode::fused
