// Readings of what the machine can do at most. Taken between the runs of a row they are its ceiling: whatever else runs
// here meanwhile slows both.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "weft/device.h"

namespace weft::bench {

// One reading: operations or bytes a second of all workers together, over one run of some milliseconds.
using Probe = std::function<double()>;

enum class Instruction { fp32_multiply_add, bf16_dot, int16_dot, int8_dot };
// A multiplication or an addition is one operation. Empty where the current ISA has no such instruction.
Probe probe_ops(WorkerTeam& team, Instruction instruction);
// The preferred instruction where the current ISA has it, else fp32.
struct Arithmetic {
  Instruction instruction;
  Probe ops;
};
Arithmetic arithmetic_of(WorkerTeam& team, Instruction preferred);

// Reads the next `bytes` of memory that holds `size`, from its begin again at its end; `passes` times over what is
// there already. Each worker reads its part.
Probe probe_read(WorkerTeam& team, const char* memory, size_t size, size_t bytes, size_t passes = 1);
// Memory to read, in huge pages where available, written: pages never written are all the same page of zeros.
Workspace memory_to_read(WorkerTeam& team, size_t bytes);

// Readings for about 0.1 s.
double best_of(const Probe& probe);
double median_of(const Probe& probe);

// A row's median seconds, and the medians of readings in between.
struct TimedBeside {
  double median_s = 0;
  std::vector<double> ceilings;  // one a probe
};
TimedBeside time_beside(const std::function<void()>& work, std::span<const Probe> probes, int min_runs,
                        double min_seconds);

}  // namespace weft::bench
