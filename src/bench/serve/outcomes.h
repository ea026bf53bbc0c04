// What came of a load: figures, and each request as a JSON line for whoever wants others.
#pragma once

#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/serve/client.h"

namespace weft::bench {

// Adds rows of throughput, goodput, refusals and percentiles of times.
void report_outcomes(const std::string& name, const ServeLoad& load, const std::vector<Outcome>& outcomes,
                     BenchReport& report);
// Seconds count from `start_s`, which is the first line's, in seconds since 1970. Throws Error(io_error).
void write_outcomes(const std::string& path, double start_s, const std::vector<Outcome>& outcomes);

}  // namespace weft::bench
