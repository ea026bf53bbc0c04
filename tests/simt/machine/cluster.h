// What the machine knows of a cluster of CTAs.
#pragma once

#include <vector>

#include "tests/simt/machine/clock.h"

namespace weft::simt {

struct Thread;

struct Cluster {
  int arrived = 0, alive = 0;  // threads
  unsigned phase = 0;
  Clock arriving = Clock(), over = Clock();  // what arrivals of this phase released, and of the last one
  std::vector<Thread*> waiting = {};
};

// Of a thread: the phase at which it has arrived and not waited for.
struct ClusterArrival {
  bool is_open = false;
  unsigned phase = 0;
  const void* pc = nullptr;
};

}  // namespace weft::simt
