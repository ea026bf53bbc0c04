// What rows of sparse operators on a card share: copies of the host's arrays there, and how many calls a graph has.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/cuda/card.h"
#include "device/cuda/memory.h"

namespace weft::bench {

inline constexpr int kCallsOfGraph = 4;

template <class T>
Workspace placed(CardBench& bench, const std::vector<T>& values) {
  Workspace memory(bench.device(), std::max<size_t>(values.size() * sizeof(T), 16));
  cuda::copy_to_card(bench.card(), memory.data(), values.data(), values.size() * sizeof(T), nullptr);
  cuda::synchronize(bench.card(), nullptr);
  return memory;
}

}  // namespace weft::bench
