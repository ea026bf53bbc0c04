// What the rows of one call of `weft bench sparse` share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/probe.h"
#include "bench/sparse/cases.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::bench {

struct SparseBench {
  const BenchOptions& options;
  BenchReport& report;
  WorkerTeam& team;
  Stream stream = Stream::cpu(team);
};

// Whether --only asks for a row of that name; for some row whose name begins so.
bool wants(const SparseBench& bench, const std::string& name);
bool may_want(const SparseBench& bench, const std::string& begin);
// Widths of rows that every bench runs.
std::vector<int64_t> sparse_feats();

// What a row is held against: the rate of gathering what it gathers; or what its operations take at the rate of an
// instruction, or its bytes at that of reading, whichever is longer.
class RowCeiling {
 public:
  explicit RowCeiling(Probe gather) : probes_{std::move(gather)} {}
  RowCeiling(WorkerTeam& team, Instruction instruction, double flops, double bytes);
  std::vector<Probe> probes() const { return probes_; }
  // Operations a second; the probes are the first of those that were timed.
  double of(const TimedBeside& timed) const;

 private:
  Workspace memory_ = {};
  std::vector<Probe> probes_;
  double flops_per_byte_ = 0;
};

void measure_blocks(SparseBench& bench);
void measure_graph_attention(SparseBench& bench);
// Of generated graphs, and of the matrices of --data.
void measure_ablations(SparseBench& bench, const std::vector<SparseCase>& graphs,
                       const std::vector<SparseCase>& matrices);

}  // namespace weft::bench
