// `weft bench NAME`: one function a benchmark, each in bench_<name>.cpp. Every row is reported beside a ceiling
// measured in the same run, or a peer's figure of the same run.
#pragma once

#include <string>
#include <vector>

#include "weft/device.h"

namespace weft::cli {

struct BenchOptions {
  bool quick = false;     // fewer cases and repetitions
  bool numerics = false;  // attention: errors against fp64 instead of speeds
  std::string only;       // attention: rows whose name holds this
  bool fit = false;       // plan: constants of the cost model from timed items
  int threads = 0;        // 0: as many as affinity and quota allow
  std::string model;      // a GGUF file, for bench model
  std::string precision = "default";
};

struct BenchRow {
  std::string bench, name, metric;  // "attention", "decode 32q/8kv hd128 kv8192 page16 bf16", "bandwidth"
  double value = 0;
  std::string unit;    // "GB/s", "tok/s", "us", ...
  double ceiling = 0;  // 0: none; share = value / ceiling
};

// Prints rows as they come: a table, or JSON lines {bench, case, metric, value, unit, ceiling, share}.
class BenchReport {
 public:
  explicit BenchReport(bool json) : json_(json) {}
  void add(const BenchRow& row);
  void note(const std::string& line);  // machine, threads, what is compared

 private:
  bool json_;
  std::string last_bench_;
};

// The larger of the two in the middle; at least one value.
inline double median(std::vector<double> values);

// Medians of repeated runs: calls work until min_seconds have passed and at least min_runs are done.
struct Timing {
  double median_s = 0, best_s = 0;
  int runs = 0;
};
template <class Work>
Timing time_runs(Work&& work, int min_runs = 5, double min_seconds = 0.2);

void bench_ceilings(const BenchOptions& options, BenchReport& report);
void bench_threads(const BenchOptions& options, BenchReport& report);
void bench_jit(const BenchOptions& options, BenchReport& report);
void bench_plan(const BenchOptions& options, BenchReport& report);
void bench_plan_fit(const BenchOptions& options, BenchReport& report);
void bench_attention(const BenchOptions& options, BenchReport& report);
void bench_gemm(const BenchOptions& options, BenchReport& report);
void bench_model(const BenchOptions& options, BenchReport& report);

}  // namespace weft::cli

#include "cli/bench_timing.h"
