// Proves a schedule before it runs: whatever the order in which workers get on and copies land, the step ends, and its
// result is the one that the program says, bit for bit.
//
//   const std::vector<Problem> problems = check(partition, schedule);
//   for (const Problem& problem : problems) fmt::print("{}\n", problem.text);
//   require_sound(partition, schedule);   // throws InternalError with them
//
// The partition's phases, and the sizes of its matrices, are those of its program; what else it says is proven with the
// schedule.
//
// How. Workers only wait for counters that grow, for copies that were issued and for entries that were released, so if
// one order comes to its end, every order does. With tags they wait for cells instead, which may be written again: but
// not before all have read them that would, so the same holds. The checker runs one order, and in it follows
//   - who is known to be behind whom (a clock a worker, joined at counters, or by reading what another wrote): two
//     accesses of a cell of which one writes must be ordered, so every read sees the same write in every order;
//   - what lies in each cell, entry and sum, as a name and not as numbers: tiles of a band, columns, tokens of an item,
//     the phase that wrote them. What an operation reads must be all that the program says it needs, in one order.
#pragma once

#include <string>
#include <vector>

#include "decode/fused/schedule.h"

namespace weft::decode::fused {

struct Problem {
  int worker = -1, phase = -1;
  int step = -1, load = -1;  // of the worker: either
  std::string text;          // with all of these
};

// Empty: the schedule is proven. No more than `most` problems; the first is the one to read.
std::vector<Problem> check(const Partition& partition, const Schedule& schedule, size_t most = 16);

void require_sound(const Partition& partition, const Schedule& schedule);

}  // namespace weft::decode::fused
