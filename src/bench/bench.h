// What `weft bench NAME` runs. Every row is reported beside a ceiling measured in the same run, or a peer's figure of
// the same run.
//
//   for (const bench::Bench& bench : bench::benches()) bench.run(options, report);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "weft/sparse.h"
#include "weft/tensor.h"

namespace weft::bench {

// What bench serve sends, and where to.
struct ServeLoad {
  std::string url, api_key, trace;                  // a file of arrivals; none: a Poisson process
  float rate = 1;                                   // of the process per second, of a trace how many times as fast
  float ramp = 0;                                   // the process's rate grows to this one; 0: it stays
  int64_t requests = 200;                           // the first so many; 0: all of a trace
  bool at_once = false;                             // all at the start
  int64_t prompt_tokens = 256, output_tokens = 64;  // of the process
  int64_t divide = 1, most_prompt = 0, most_output = 0;
  int64_t choices = 1;
  bool same_prompt = false;  // all have the first one's
  bool reproducible = false;
  float temperature = 0, top_p = 1;
  float cancel = 0;      // this share of clients leaves, in any phase
  float time_limit = 0;  // seconds, after which whatever is not answered is left; 0: none
  float give_up = 0;     // seconds that a tenth may wait for the first token, else all ends there; 0: for ever
  uint64_t seed = 1;
  int64_t vocabulary = 32000;            // prompts are ids below it
  int64_t ttft_ms = 5000, gap_ms = 150;  // what counts as good
  std::string outcomes;                  // a file for what came of each request
  std::string save;                      // a file for the requests, which are sent nowhere then
};

struct BenchOptions {
  bool quick = false;                 // fewer cases and repetitions
  bool numerics = false;              // attention: errors against fp64 instead of speeds
  std::string only;                   // attention, sparse, and jit on a card: rows whose name holds this
  Device device;                      // ceilings, attention, model, plan, jit: where it runs
  bool fit = false;                   // plan: constants of the cost model from timed items
  int threads = 0;                    // 0: as many as affinity and quota allow
  std::string model;                  // a GGUF file, for bench model
  std::string shape;                  // model, on a card: random weights of that shape instead, 8b or 1b
  std::string study = "deep-linear";  // decode
  std::string weights = "bf16";       // decode; model with a shape: their type (random_weights.h)
  std::string precision = "default";
  std::string step = "layered";  // model, on a card: auto, layered, fused, or both in turns
  int step_ctas = 0;             // ForwardOptions::step_ctas
  std::string data;              // sparse: a folder of matrices; "": only generated ones
  float seconds = 10;            // sparse-tune: for each matrix, most of them for the search
  int features = 64;             // sparse-tune: of a row
  std::function<std::string(const std::string& path)> read_file;    // serve: a trace, unpacked
  std::function<sparse::Coo(const std::string& path)> read_matrix;  // of that folder
  std::function<sparse::CooTensor(const std::string& path)> read_tensor;
  ServeLoad load;
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
  virtual void note(const std::string& line) = 0;      // machine, threads, what is compared
  virtual void progress(const std::string& line) = 0;  // what runs next and for how long, of a bench that takes minutes
};

struct Bench {
  const char* name;
  const char* description;
  void (*run)(const BenchOptions& options, BenchReport& report);
};
std::span<const Bench> benches();

// Of bench decode: what --study may be.
struct Study {
  std::string_view name = {}, description = {};
};
std::span<const Study> decode_studies();

// What every result must name to mean anything: CPU, caches, memory, system and compiler.
std::string machine();

}  // namespace weft::bench
