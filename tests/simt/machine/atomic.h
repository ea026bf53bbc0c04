// Words that atomics change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/simt/machine/clock.h"

namespace weft::simt {

// A value that the word has had.
struct Version {
  uint64_t value;
  Event write = {};           // never: by the host, or by a store that is no atomic
  Clock published = Clock();  // what who acquires it learns
};

// The oldest first. A load gives as old a version as it may: each look of a thread the next one, from the last one on
// that it knows of by other ways. So who waits for too few arrivals finds just those.
struct Atomic {
  std::deque<Version> versions = {};
  size_t first = 0;               // the number of versions.front()
  std::vector<size_t> seen = {};  // by each thread, the number of its last one + 1
  size_t newest() const { return first + versions.size() - 1; }
};

}  // namespace weft::simt
