// What `weft bench NAME` runs. Every row is reported beside a ceiling measured in the same run, or a peer's figure of
// the same run.
//
//   for (const bench::Bench& bench : bench::benches()) bench.run(options, report);
#pragma once

#include <functional>
#include <span>
#include <string>

#include "weft/sparse.h"
#include "weft/tensor.h"

namespace weft::bench {

struct BenchOptions {
  bool quick = false;     // fewer cases and repetitions
  bool numerics = false;  // attention: errors against fp64 instead of speeds
  std::string only;       // attention, sparse: rows whose name holds this
  Device device;          // attention: where it runs
  bool fit = false;       // plan: constants of the cost model from timed items
  int threads = 0;        // 0: as many as affinity and quota allow
  std::string model;      // a GGUF file, for bench model
  std::string precision = "default";
  std::string data;  // sparse: a folder of matrices; "": only generated ones
  std::function<sparse::Coo(const std::string& path)> read_matrix;  // of that folder
};

struct BenchRow {
  std::string bench, name, metric;  // "attention", "decode 32q/8kv hd128 kv8192 page16 bf16", "bandwidth"
  double value = 0;
  std::string unit;    // "GB/s", "tok/s", "us", ...
  double ceiling = 0;  // 0: none
  double share() const { return ceiling > 0 ? value / ceiling : 0; }
};

// Takes rows as they come.
class BenchReport {
 public:
  virtual ~BenchReport() = default;
  virtual void add(const BenchRow& row) = 0;
  virtual void note(const std::string& line) = 0;  // machine, threads, what is compared
};

struct Bench {
  const char* name;
  const char* description;
  void (*run)(const BenchOptions& options, BenchReport& report);
};
std::span<const Bench> benches();

// What every result must name to mean anything: CPU, caches, memory, system and compiler.
std::string machine();

}  // namespace weft::bench
