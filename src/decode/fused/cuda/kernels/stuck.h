// Where a wait of a fused kernel gave up, for host and kernel alike.
#pragma once

namespace weft::decode::fused {

// By the highest 32 bits of a worker's word; the lowest: of which phase.
enum class StuckAt : unsigned { edge = 1, copy, free_entry };

}  // namespace weft::decode::fused
