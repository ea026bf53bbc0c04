// Medians of repeated runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "bench/stop.h"

namespace weft::bench {

// The larger of the two in the middle; at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Timing {
  double median_s = 0, best_s = 0;
  int runs = 0;
};

// Calls work until min_seconds have passed and at least min_runs are done.
template <class Work>
Timing time_runs(Work&& work, int min_runs = 5, double min_seconds = 0.2) {
  stop_if_asked();
  work();  // warm up
  std::vector<double> seconds;
  const auto begin = Clock::now();
  while (static_cast<int>(seconds.size()) < min_runs || seconds_since(begin) < min_seconds) {
    stop_if_asked();
    seconds.push_back(seconds_of(work));
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds[seconds.size() / 2], seconds.front(), static_cast<int>(seconds.size())};
}

}  // namespace weft::bench
