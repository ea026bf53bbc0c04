// Where the time of a fused step goes, from the times that its workers left (ModelKernel::read_trace).
//
//   const std::vector<PhaseTime> times = phase_times(phases, workers, stamps);
//   fmt::print("{}", to_string(times, clock_step(stamps)));
//
//   worker 0   |begun ---- ready ======== multiplied - left|begun ------- ready ===== ...
//   worker 1   |begun -------- ready ============ multiplied - left|begun --- ready ===== ...
//                                                 |- skew: the slowest less the median
//                                                 |--- trip: from the slowest to the first of the next phase ---|
//
// A join costs because workers end apart (skew), or because numbers travel and inputs are made of them (trip).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/trace.h"
#include "decode/fused/phases.h"

namespace weft::decode::fused {

// Microseconds, in the mean of all layers but the first; of the first four also of all workers.
struct PhaseTime {
  std::string name = {};                               // "qkv", "head"
  double input = 0, multiply = 0, leave = 0, all = 0;  // until its input is there, until it has multiplied, ...
  double skew = 0;                                     // the slowest worker's end less the median one's
  // From the slowest worker's end of the phase before until the first has its input; none: nobody says when that was.
  std::optional<double> trip = {};
};

// Stamps: [phases, workers, kNumStamps], nanoseconds of the card's clock, which all workers share; 0: none. Where a
// worker has multiplied nothing, it ends when it has left what others read. Of the phases of a layer, and of the head.
std::vector<PhaseTime> phase_times(const Phases& phases, int workers, std::span<const uint64_t> stamps);

// The clock moves in steps of so many nanoseconds: what all differences of stamps are multiples of. 0: all are alike.
uint64_t clock_step(std::span<const uint64_t> stamps);

// The same times as spans of WEFT_TRACE, a lane for each worker: a phase's input, its own work, and what it leaves. The
// last stamp is at `end_us` of the trace.
std::vector<attention::Trace::Event> phase_spans(const Phases& phases, int workers, std::span<const uint64_t> stamps,
                                                 int process, double end_us);

std::string to_string(std::span<const PhaseTime> times, uint64_t clock_step_ns);

}  // namespace weft::decode::fused
