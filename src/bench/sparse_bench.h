// What the rows of one call of `weft bench sparse` share.
#pragma once

#include "bench/bench.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::bench {

struct SparseBench {
  const BenchOptions& options;
  BenchReport& report;
  WorkerTeam& team;
  Stream stream = Stream::cpu(team);
};

void measure_blocks(SparseBench& bench);
void measure_graph_attention(SparseBench& bench);

}  // namespace weft::bench
