#include "sparse/tune/search.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "sparse/formats/structure.h"
#include "sparse/tune/results.h"

namespace weft::sparse {
namespace {

// The least of some runs: what else the machine does only adds to it. Stops early at what is twice as slow as the best.
double least_of_runs(const std::function<double()>& timed, double best, double seconds) {
  constexpr int kLeastRuns = 3;
  double least = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int run = 0; run < kLeastRuns || seconds_since(start) < seconds; ++run) {
    least = std::min(least, timed());
    if (least > 2 * best) break;
  }
  return least;
}

// What else the machine did while one of them ran decides nothing: the first candidate and the fastest ones run again,
// in turns, once at least and for so long.
void measure_again(const std::vector<Candidate>& candidates, std::vector<Measured>& results, double for_seconds,
                   const Stopwatch& stopwatch) {
  constexpr size_t kMost = 4;
  constexpr int kRounds = 5;
  constexpr double kSeconds = 0.005, kClose = 1.5, kNoBest = std::numeric_limits<double>::infinity();
  std::vector<Measured*> all, close;
  for (Measured& m : results) all.push_back(&m);
  std::sort(all.begin(), all.end(), [](const Measured* x, const Measured* y) { return x->seconds < y->seconds; });
  for (Measured* m : all)
    if (m->choice == candidates.front().name || (close.size() < kMost && m->seconds <= kClose * all.front()->seconds))
      close.push_back(m);
  if (close.size() < 2) return;
  const auto start = Clock::now();
  std::vector<std::function<double()>> timed;
  for (int round = 0; round < kRounds && (round == 0 || seconds_since(start) < for_seconds); ++round)
    for (size_t i = 0; i < close.size(); ++i) {
      if (round == 0) {
        const auto candidate = std::find_if(candidates.begin(), candidates.end(),
                                            [&](const Candidate& w) { return w.name == close[i]->choice; });
        candidate->run();  // may have to be compiled
        timed.push_back(stopwatch.timed(candidate->run));
      }
      close[i]->seconds = std::min(close[i]->seconds, least_of_runs(timed[i], kNoBest, kSeconds));
    }
}

}  // namespace

Tuned search(const std::string& key, const std::vector<Candidate>& candidates, double seconds,
             const Stopwatch& stopwatch) {
  check(seconds >= 0, ErrorCode::invalid_argument, "seconds: is {}; 0 and more are allowed", seconds);
  const auto start = Clock::now();
  // What is known of these candidates; others may be of another version.
  std::vector<Measured> results = read_results(key);
  std::erase_if(results, [&](const Measured& m) {
    return std::none_of(candidates.begin(), candidates.end(),
                        [&](const Candidate& candidate) { return candidate.name == m.choice; });
  });
  const auto find = [&](const Candidate& candidate) {
    return std::find_if(results.begin(), results.end(), [&](const Measured& m) { return m.choice == candidate.name; });
  };
  Tuned tuned;
  constexpr double kForFirst = 0.9;  // of the time; the rest is for the fastest ones again
  double longest = 0;                // of a candidate so far, with compiling it: none begins that would end too late
  double best = std::numeric_limits<double>::infinity();
  for (const Measured& known : results) best = std::min(best, known.seconds);
  // Whether there was memory for it. Where there is none for the first one, there is none for what is searched.
  const auto measure = [&](const Candidate& candidate) {
    try {
      candidate.run();
      results.push_back({candidate.name, least_of_runs(stopwatch.timed(candidate.run), best, 0.03)});
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::out_of_memory || results.empty()) throw;
      return false;
    }
  };
  for (const Candidate& candidate : candidates) {
    if (find(candidate) != results.end()) continue;
    if (!results.empty() && seconds_since(start) + longest >= seconds * kForFirst) {
      ++tuned.num_left;
      continue;
    }
    const auto begin = Clock::now();
    const bool is_measured = measure(candidate);
    if (candidate.forget) candidate.forget();
    ++(is_measured ? tuned.num_tried : tuned.num_left);
    if (!is_measured) continue;
    best = std::min(best, results.back().seconds);
    keep_results(key, results);
    longest = std::max(longest, seconds_since(begin));
  }
  if (tuned.num_tried > 0) {
    measure_again(candidates, results, seconds - seconds_since(start), stopwatch);
    keep_results(key, results);
  }
  const auto fastest = std::min_element(results.begin(), results.end(),
                                        [](const Measured& x, const Measured& y) { return x.seconds < y.seconds; });
  tuned.choice = fastest->choice;
  tuned.seconds = fastest->seconds;
  if (const auto likely = find(candidates.front()); likely != results.end()) {
    tuned.likely_choice = likely->choice;
    tuned.likely_seconds = likely->seconds;
  }
  return tuned;
}

std::string tuned_candidate(const Structure::Data& structure, const std::string& call, Device device) {
  {
    const std::lock_guard lock(structure.choices.mutex);
    if (const auto found = structure.choices.candidates.find(call); found != structure.choices.candidates.end())
      return found->second;
  }
  const std::vector<Measured> results = read_results(results_key(structure, call, device));
  const auto fastest = std::min_element(results.begin(), results.end(),
                                        [](const Measured& x, const Measured& y) { return x.seconds < y.seconds; });
  const std::string candidate = fastest == results.end() ? "" : fastest->choice;
  keep_candidate(structure, call, candidate);
  return candidate;
}

void keep_candidate(const Structure::Data& structure, const std::string& call, const std::string& candidate) {
  const std::lock_guard lock(structure.choices.mutex);
  structure.choices.candidates[call] = candidate;
}

int64_t number_in(const std::string& candidate, const std::string& word, int64_t otherwise) {
  const size_t at = candidate.find(word + " ");
  int64_t number = 0;
  if (at == candidate.npos) return otherwise;
  const auto [end, error] =
      std::from_chars(candidate.data() + at + word.size() + 1, candidate.data() + candidate.size(), number);
  return error == std::errc() && number >= 0 && number <= 1024 ? number : otherwise;
}

Workspace ones(int64_t count, Device device) {
  Workspace memory(device, static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float));
  if (device == Device::cpu()) std::fill_n(static_cast<float*>(memory.data()), count, 1.f);
  return memory;
}

}  // namespace weft::sparse
