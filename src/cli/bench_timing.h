// median and time_runs of cli/bench.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "cli/cli.h"
#include "cli/clock.h"

namespace weft::cli {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Work>
Timing time_runs(Work&& work, int min_runs, double min_seconds) {
  work();  // warm up
  std::vector<double> seconds;
  const auto begin = Clock::now();
  while (static_cast<int>(seconds.size()) < min_runs || seconds_since(begin) < min_seconds) {
    stop_if_interrupted();
    seconds.push_back(seconds_of(work));
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), static_cast<int>(seconds.size())};
}

}  // namespace weft::cli
