// Schedules that are wrong, or may be: one or two small changes of a right one.
#pragma once

#include <random>
#include <string>

#include "decode/fused/schedule.h"

namespace weft::testing {

// Changes the schedule, and says what it did: "worker 2, step 17 (read): begin 3 -> 4".
std::string mutate(decode::fused::Schedule& schedule, std::mt19937_64& random);
// The same of a partition, from which a schedule is made: a border, a slot, a flag of a phase.
std::string mutate(decode::fused::Partition& partition, std::mt19937_64& random);

}  // namespace weft::testing
