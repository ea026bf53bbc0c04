// What rows of sparse operators on a card share: copies of the host's arrays there, and how many calls a graph has.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/cuda/card.h"
#include "device/cuda/memory.h"

namespace weft::bench {

inline constexpr int kCallsOfGraph = 4;

// A copy of the host's bytes on a card.
inline Workspace placed(Device device, const void* data, size_t bytes) {
  cuda::Card& card = cuda::Card::at(device.index);
  Workspace memory(device, std::max<size_t>(bytes, 16));
  cuda::copy_to_card(card, memory.data(), data, bytes, nullptr);
  cuda::synchronize(card, nullptr);
  return memory;
}
template <class T>
Workspace placed(CardBench& bench, const std::vector<T>& values) {
  return placed(bench.device(), values.data(), values.size() * sizeof(T));
}

}  // namespace weft::bench
