// How many rows of the step times query heads of its KV head an item of attention has at most: the rows of a product of
// warps. For host and kernel alike.
#pragma once

namespace weft::decode::fused {

inline constexpr int kItemRows = 16;

}  // namespace weft::decode::fused
