#include "decode/fused/cuda/phase_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"
#include "decode/fused/cuda/kernels/model_args.h"

namespace weft::decode::fused {
namespace {

constexpr double kMicroseconds = 1e-3;  // of a nanosecond

// The stamps of a phase.
class PhaseStamps {
 public:
  PhaseStamps(std::span<const uint64_t> stamps, size_t phase, size_t workers)
      : of_(stamps.subspan(phase * workers * kNumStamps, workers * kNumStamps)), workers_(workers) {}

  // What a worker does not say is when it said something last.
  uint64_t of(size_t worker, Stamp stamp) const {
    uint64_t at = of_[worker * kNumStamps + kBegun];
    for (int i = kReady; i <= stamp; ++i) at = std::max(at, of_[worker * kNumStamps + static_cast<size_t>(i)]);
    return at;
  }
  bool says(size_t worker, Stamp stamp) const { return of_[worker * kNumStamps + static_cast<size_t>(stamp)] != 0; }
  // Of the phase's own work.
  uint64_t end(size_t worker) const { return of(worker, says(worker, kMultiplied) ? kMultiplied : kLeft); }

  // Of workers that say it, in the order of time.
  std::vector<uint64_t> ends() const {
    std::vector<uint64_t> all;
    for (size_t w = 0; w < workers_; ++w)
      if (says(w, kLeft)) all.push_back(end(w));
    std::ranges::sort(all);
    return all;
  }
  std::vector<uint64_t> starts() const {
    std::vector<uint64_t> all;
    for (size_t w = 0; w < workers_; ++w)
      if (says(w, kReady)) all.push_back(of(w, kReady));
    std::ranges::sort(all);
    return all;
  }

 private:
  std::span<const uint64_t> of_;
  size_t workers_;
};

double us_between(uint64_t from, uint64_t to) {
  return static_cast<double>(static_cast<int64_t>(to - from)) * kMicroseconds;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double x) { sum += x, ++count; }
  double value() const { return count > 0 ? sum / count : 0; }
};

std::string short_name(const Phase& phase) {
  const std::string name = name_of(phase);
  return phase.layer < 0 ? name : name.substr(name.find(": ") + 2);
}

}  // namespace

std::vector<PhaseTime> phase_times(const Phases& phases, int workers, std::span<const uint64_t> stamps) {
  const auto count = static_cast<size_t>(workers), of_layer = static_cast<size_t>(phases.of_layer);
  const size_t all = phases.all.size(), head = all - 1;
  ensure(stamps.size() == all * count * kNumStamps, "{} stamps of {} phases and {} workers", stamps.size(), all,
         workers);
  std::vector<PhaseTime> times;
  for (size_t first = 0; first <= of_layer; ++first) {
    const bool is_head = first == of_layer;
    Mean until[kNumStamps], skew, trip;
    // A model of one layer has no others.
    const size_t begin = is_head ? head : head > of_layer ? of_layer + first : first;
    for (size_t phase = begin; phase < (is_head ? all : head); phase += of_layer) {
      const PhaseStamps own(stamps, phase, count);
      for (size_t w = 0; w < count; ++w) {
        if (!own.says(w, kLeft)) continue;
        for (const Stamp stamp : {kReady, kMultiplied, kLeft})
          until[stamp].add(us_between(own.of(w, kBegun), own.of(w, stamp)));
      }
      const std::vector<uint64_t> ends = own.ends(), starts = own.starts();
      if (!ends.empty()) skew.add(us_between(ends[(ends.size() - 1) / 2], ends.back()));
      if (phase == 0 || starts.empty()) continue;
      const std::vector<uint64_t> before = PhaseStamps(stamps, phase - 1, count).ends();
      if (!before.empty()) trip.add(us_between(before.back(), starts.front()));
    }
    PhaseTime time{.name = short_name(phases.all[is_head ? head : first]),
                   .input = until[kReady].value(),
                   .multiply = until[kMultiplied].value() - until[kReady].value(),
                   .leave = until[kLeft].value() - until[kMultiplied].value(),
                   .all = until[kLeft].value(),
                   .skew = skew.value()};
    if (trip.count > 0) time.trip = trip.value();
    times.push_back(std::move(time));
  }
  return times;
}

uint64_t clock_step(std::span<const uint64_t> stamps) {
  uint64_t step = 0, first = 0;
  for (const uint64_t stamp : stamps) {
    if (stamp == 0) continue;
    if (first == 0) first = stamp;
    step = std::gcd(step, stamp > first ? stamp - first : first - stamp);
  }
  return step;
}

std::vector<attention::Trace::Event> phase_spans(const Phases& phases, int workers, std::span<const uint64_t> stamps,
                                                 int process, double end_us) {
  static constexpr std::string_view kParts[kNumStamps] = {"", "input", "multiply", "leave"};
  const auto count = static_cast<size_t>(workers);
  const uint64_t last = stamps.empty() ? 0 : std::ranges::max(stamps);
  std::vector<attention::Trace::Event> spans;
  for (size_t phase = 0; phase < phases.all.size(); ++phase) {
    const PhaseStamps own(stamps, phase, count);
    const std::string name = name_of(phases.all[phase]);
    for (size_t w = 0; w < count; ++w) {
      if (!own.says(w, kLeft)) continue;
      uint64_t from = own.of(w, kBegun);
      for (const Stamp stamp : {kReady, kMultiplied, kLeft}) {
        if (!own.says(w, stamp)) continue;
        const uint64_t to = own.of(w, stamp);
        spans.push_back({.process = process,
                         .lane = static_cast<int>(w),
                         .begin_us = end_us - us_between(from, last),
                         .us = us_between(from, to),
                         .name = fmt::format("{}, {}", name, kParts[stamp]),
                         .category = std::string(kParts[stamp])});
        from = to;
      }
    }
  }
  return spans;
}

std::string to_string(std::span<const PhaseTime> times, uint64_t clock_step_ns) {
  std::string text = fmt::format("{:<20} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8}\n", "phase", "input", "multiply", "leave",
                                 "all", "skew", "trip");
  for (const PhaseTime& time : times)
    fmt::format_to(std::back_inserter(text), "{:<20} {:>8.2f} {:>9.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8}\n", time.name,
                   time.input, time.multiply, time.leave, time.all, time.skew,
                   time.trip ? fmt::format("{:.2f}", *time.trip) : "-");
  return text + fmt::format("the clock moves in steps of {} ns\n", clock_step_ns);
}

}  // namespace weft::decode::fused
