// Steps of a model beside what bounds them: prefill of a prompt, decode of some requests.
#pragma once

#include <span>
#include <string>

#include "bench/probe.h"
#include "weft/model.h"

namespace weft::bench {

// What the machine can do at most.
struct Ceilings {
  double bandwidth = 0, ops = 0;
};
class Machine {
 public:
  // Reads of the weights' size; arithmetic of the precision's products.
  Machine(WorkerTeam& team, size_t weight_bytes, const std::string& precision);
  const char* products() const { return products_; }

  const Probe& ops() const { return ops_; }

  // What `measure` gives, with the ceilings around it: reads between its steps would cost it its caches.
  template <class Measure>
  auto beside(const Measure& measure) const {
    const Ceilings before = now();
    auto row = measure();
    const Ceilings after = now();
    row.ceilings = {(before.bandwidth + after.bandwidth) / 2, (before.ops + after.ops) / 2};
    return row;
  }
  Ceilings now() const { return {median_of(read_), median_of(ops_)}; }

 private:
  Workspace memory_;
  Probe read_, ops_;
  const char* products_ = nullptr;
};

// As forward.run, one step after another: a look between them whether to stop.
void run_prompts(ForwardPass& forward, std::span<const ForwardPass::Input> inputs);

struct Prefill {
  int64_t tokens = 0;
  double seconds = 0, ops = 0;  // medians: of the runs, and of readings in between
};
Prefill measure_prefill(const Machine& machine, ForwardPass& forward, std::span<const int32_t> ids, int64_t tokens,
                        int repeats);

// Requests of `prompt` tokens each, then `steps` tokens more of all together, one of each a step.
struct Decode {
  int requests = 0, steps = 0;
  int64_t prompt = 0;
  bool shared = false;               // the prompt, by all requests
  double kv_bytes = 0;               // of a token of context
  std::string kv_dtype{};            // where it is not the precision's own
  double prefill_s = 0, step_s = 0;  // the median step
  Ceilings ceilings{};

  double bytes_read() const {  // of keys and values, a step
    return kv_bytes * (requests * steps / 2. + static_cast<double>(prompt) * (shared ? 1 : requests));
  }
  std::string name() const;
};
Decode measure_decode(ForwardPass& forward, std::span<const int32_t> ids, int requests, int64_t prompt, int steps,
                      bool shared = false);

}  // namespace weft::bench
