// tune_spmm: measures candidates, likely ones first, until all are known or the time is over.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "sparse/operators/kept.h"
#include "sparse/tune/results.h"
#include "sparse/tune/spmm.h"

namespace weft::sparse {
namespace {

// What candidates are measured with. Values of zeros and ones take as long as others.
struct Problem {
  const Structure& a;
  SpmmCall call;
  Stream stream;
  Workspace values, b, c;

  Problem(const Structure& structure, const SpmmCall& spmm, Stream on) : a(structure), call(spmm), stream(on) {
    const auto room = [&](int64_t rows, int64_t width) {
      return Workspace(Device::cpu(), static_cast<size_t>(std::max<int64_t>(rows * width, 1)) * sizeof(float));
    };
    values = room(a.nnz(), 1), b = room(a.num_cols(), call.feat), c = room(a.num_rows(), call.feat);
    std::fill_n(static_cast<float*>(values.data()), a.nnz(), 1.f);
    std::fill_n(static_cast<float*>(b.data()), a.num_cols() * call.feat, 1.f);  // pages never written are one page
  }
  void run(const Operator& op) const {
    const auto view = [&](const Workspace& w, int64_t rows) {
      return TensorView(w.data(), DType::fp32, {rows, call.feat});
    };
    op.run({.structures = {{"J", a}},
            .buffers = {{"A", {values.data(), DType::fp32, {a.nnz()}}},
                        {"B", view(b, a.num_cols())},
                        {"C", view(c, a.num_rows())}},
            .values_unchanged = call.keeps_values},
           stream);
  }
};

// The least of some runs: what else the machine does only adds to it. Stops early at what is twice as slow as the best.
double seconds_of_candidate(const Problem& problem, const SpmmChoice& choice, double best) {
  constexpr int kLeastRuns = 3, kMostRuns = 200;
  constexpr double kSeconds = 0.03;
  const Operator op = spmm_operator(choice, problem.call.feat, DType::fp32);
  problem.run(op);  // makes formats and their values
  double least = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  for (int run = 0; run < kMostRuns && (run < kLeastRuns || seconds_since(start) < kSeconds); ++run) {
    least = std::min(least, seconds_of([&] { problem.run(op); }));
    if (least > 2 * best) break;
  }
  return least;
}

}  // namespace

TunedSpmm tune_spmm(const Structure& a, int64_t feat, const TuneOptions& options, Stream stream) {
  check(feat >= 1 && feat <= INT32_MAX, ErrorCode::invalid_argument, "feat: is {}; 1 to {} are allowed", feat,
        INT32_MAX);
  check(options.seconds >= 0, ErrorCode::invalid_argument, "seconds: is {}; 0 and more are allowed", options.seconds);
  const Structure::Data& data = data_of(a, "a");
  const auto start = Clock::now();
  const SpmmCall call{.feat = feat, .keeps_values = options.values_unchanged, .workers = stream.team().num_workers()};
  const RowLengths rows = row_lengths(data, call);
  std::vector<SpmmChoice> candidates = spmm_candidates(rows, call);
  const std::string key = results_key(data, call);
  std::vector<Measured> results = read_results(key);
  const auto find = [&](const SpmmChoice& choice) {
    return std::find_if(results.begin(), results.end(), [&](const Measured& m) { return m.choice == choice; });
  };
  const Problem problem(a, call, stream);
  TunedSpmm tuned;
  double best = std::numeric_limits<double>::infinity();
  for (const Measured& known : results) best = std::min(best, known.seconds);
  for (const SpmmChoice& choice : candidates) {
    if (find(choice) != results.end()) continue;
    // The first is what is taken without a search; it is measured however short the time.
    if (!results.empty() && seconds_since(start) >= options.seconds) {
      ++tuned.num_left;
      continue;
    }
    results.push_back({choice, seconds_of_candidate(problem, choice, best)});
    best = std::min(best, results.back().seconds);
    ++tuned.num_tried;
    keep_results(key, results);
  }
  const auto fastest = std::min_element(results.begin(), results.end(),
                                        [](const Measured& x, const Measured& y) { return x.seconds < y.seconds; });
  tuned.choice = to_text(fastest->choice);
  tuned.seconds = fastest->seconds;
  if (const auto likely = find(candidates.front()); likely != results.end()) {
    tuned.likely_choice = to_text(likely->choice);
    tuned.likely_seconds = likely->seconds;
  }
  keep_choice(data, call, fastest->choice);
  return tuned;
}

}  // namespace weft::sparse
