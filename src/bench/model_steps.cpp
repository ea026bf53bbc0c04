#include "bench/model_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "bench/stop.h"
#include "bench/timing.h"

namespace weft::bench {

Machine::Machine(WorkerTeam& team, size_t weight_bytes, const std::string& precision)
    : memory_(memory_to_read(team, std::max(weight_bytes, size_t{64} << 20))),
      read_(probe_read(team, static_cast<const char*>(memory_.data()), memory_.bytes(), memory_.bytes())) {
  const Arithmetic arithmetic = arithmetic_of(team, precision == "exact"  ? Instruction::fp32_multiply_add
                                                    : precision == "fast" ? Instruction::int8_dot
                                                                          : Instruction::int16_dot);
  ops_ = arithmetic.ops;
  products_ = arithmetic.instruction == Instruction::fp32_multiply_add ? "fp32 multiply-add"
              : arithmetic.instruction == Instruction::int8_dot        ? "int8 dots"
                                                                       : "int16 dots";
}

void run_prompts(ForwardPass& forward, std::span<const ForwardPass::Input> inputs) {
  constexpr size_t kRows = 512;  // of a step of the forward pass: what is cut here is cut there, too
  std::vector<ForwardPass::Input> together;
  size_t rows = 0;
  const auto run = [&] {
    stop_if_asked();
    if (!together.empty()) forward.run(together);
    together.clear();
    rows = 0;
  };
  for (const ForwardPass::Input& input : inputs)
    for (size_t at = 0; at < input.tokens.size(); at += kRows) {
      const auto part = input.tokens.subspan(at, std::min(kRows, input.tokens.size() - at));
      if (at > 0 || rows + part.size() > kRows) run();
      together.push_back({.sequence = input.sequence, .tokens = part});
      rows += part.size();
    }
  run();
}

Prefill measure_prefill(const Machine& machine, ForwardPass& forward, std::span<const int32_t> ids, int64_t tokens,
                        int repeats) {
  const auto sequence = forward.add_sequence();
  const ForwardPass::Input one[] = {{.sequence = sequence, .tokens = ids.first(static_cast<size_t>(tokens))}};
  const auto run = [&] {
    forward.truncate(sequence, 0);
    run_prompts(forward, one);
  };
  const TimedBeside timed = time_beside(run, {&machine.ops(), 1}, repeats, 0);
  forward.release(sequence);
  return {tokens, timed.median_s, timed.ceilings[0]};
}

std::string Decode::name() const {
  std::string name = requests == 1 ? fmt::format("decode {} after {}", steps, prompt)
                     : shared      ? fmt::format("{} requests, {} after {} shared", requests, steps, prompt)
                                   : fmt::format("{} requests, {} after {}", requests, steps, prompt);
  return kv_dtype.empty() ? name : name + ", " + kv_dtype;
}

Decode measure_decode(ForwardPass& forward, std::span<const int32_t> ids, int requests, int64_t prompt, int steps,
                      bool shared) {
  std::vector<ForwardPass::Input> inputs;
  for (int i = 0; i < requests && !(shared && i > 0); ++i)
    inputs.push_back({.sequence = forward.add_sequence(), .tokens = ids.first(static_cast<size_t>(prompt))});
  const auto prefill_start = Clock::now();
  run_prompts(forward, inputs);
  Decode result{.requests = requests,
                .steps = steps,
                .prompt = prompt,
                .shared = shared,
                .kv_bytes = static_cast<double>(forward.kv_bytes_per_token()),
                .prefill_s = seconds_since(prefill_start)};
  while (static_cast<int>(inputs.size()) < requests)
    inputs.push_back({.sequence = forward.fork(inputs[0].sequence, prompt), .tokens = {}});
  std::vector<double> step_s;
  for (int step = 0; step < steps; ++step) {
    stop_if_asked();
    for (int i = 0; i < requests; ++i)
      inputs[static_cast<size_t>(i)].tokens = ids.subspan(static_cast<size_t>(step + i) % ids.size(), 1);
    const auto start = Clock::now();
    forward.run(inputs);
    step_s.push_back(seconds_since(start));
  }
  result.step_s = median(step_s);
  for (const auto& input : inputs) forward.release(input.sequence);
  return result;
}

}  // namespace weft::bench
