// Arrivals and lengths as ServeGen publishes them: a JSON line a client, with rates and burstiness by windows of time
// and probabilities of lengths (https://github.com/alibaba/ServeGen).
#pragma once

#include <string>
#include <vector>

#include "bench/serve/trace.h"

namespace weft::bench {

bool is_servegen(const std::string& line);
// Draws the client's first `most` requests, 0: all. Gaps follow the window's family (Gamma, Weibull) and shape, their
// mean its rate. Throws std::exception with what is wrong with the line.
void add_servegen(const std::string& line, int64_t most, uint64_t seed, std::vector<Arrival>& arrivals);

}  // namespace weft::bench
