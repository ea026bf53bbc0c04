// What the rows of `weft bench attention` share: memory for caches, kernels with the batches they run over, and how
// long they run.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/batch.h"
#include "bench/bench.h"
#include "bench/probe.h"
#include "bench/timing.h"
#include "weft/attention.h"

namespace weft::bench {

// Memory for caches, larger than the machine's: batches lie in it side by side, so that no line of one is still in a
// cache when its turn comes again. Its numbers are fit for bf16 and fp32.
class Pool {
 public:
  explicit Pool(int64_t bytes);
  char* data() { return static_cast<char*>(memory_.data()); }
  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }

 private:
  Workspace memory_;
};

// A kernel and the batches it runs over in turn.
struct Job {
  AttentionKernel kernel;
  std::vector<Batch> batches;
  std::vector<Workspace> workspaces;
  size_t next = 0;

  void plan();
  void run(WorkerTeam& team);  // over the next batch
  Timing time(WorkerTeam& team, int min_runs, double min_seconds);
};

// What the rows of one call of the bench share.
struct AttentionBench {
  const BenchOptions& options;
  BenchReport& report;
  WorkerTeam& team;

  bool wants(const std::string& name) const { return name.find(options.only) != std::string::npos; }
  Timing time(Job& job) { return job.time(team, options.quick ? 3 : 9, options.quick ? 0.05 : 0.3); }
  // Median seconds, and operations a second of the instruction that multiplies, read in between.
  std::pair<double, double> time_beside_peak(Job& job, DType compute, int min_runs);

  // Median seconds of either, run in turns: what disturbs one disturbs the other.
  std::pair<double, double> time_in_turns(const std::function<void()>& one, const std::function<void()>& other) {
    return time_in_turns(one, other, options.quick ? 5 : 25);
  }
  std::pair<double, double> time_in_turns(const std::function<void()>& one, const std::function<void()>& other,
                                          int min_rounds);

  std::optional<Pool> memory;
  Pool& pool();
};

// Decode over batches that fill the pool, or `qo_len` tokens of each request; bytes a run in `bytes`.
Job decode_job(AttentionBench& bench, const AttentionSpec& spec, const Shape& shape, const std::vector<int>& kv_lens,
               int page_size, int64_t& bytes, int qo_len = 1);
// Requests of so many tokens from their first on; not planned yet.
Job prefill_job(AttentionBench& bench, const AttentionSpec& spec, const Shape& shape, const std::vector<int>& lens);
// Causal: row i of the last qo_len sees the keys up to its own, at most window + 1 of them.
double prefill_flops(const Shape& shape, double len, double window);
std::string products_of(DType compute);

// A workspace that a plan lies in.
Workspace placed(const Plan& plan);

// Latent rows, shared prefixes, lists of blocks, streams, rotation inside.
void measure_forms(AttentionBench& bench);
// Chosen pages, masked tiles, trees.
void measure_block_lists(AttentionBench& bench);
// Errors instead of speeds: every combination of types, scales, variants and masks.
void measure_numerics(AttentionBench& bench);

}  // namespace weft::bench
