#include "bench/serve/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace weft::bench {
namespace {

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(at), values.end());
  return values[at];
}

class LatencyRows {
 public:
  LatencyRows(BenchReport& report, std::string name) : report_(report), name_(std::move(name)) {}
  void add(const std::string& metric, double value, const std::string& unit) {
    report_.add({.bench = "serve", .name = name_, .metric = metric, .value = value, .unit = unit});
  }
  void add_percentiles(const std::string& metric, std::vector<double> seconds) {
    for (const auto& [label, share] : {std::pair("P50", 0.5), {"P90", 0.9}, {"P99", 0.99}, {"P99.9", 0.999}})
      add(fmt::format("{} {}", metric, label), 1000 * percentile(seconds, share), "ms");
  }

 private:
  BenchReport& report_;
  std::string name_;
};

bool is_good(const Outcome& outcome, const ServeLoad& load) {
  const double steps = std::max<double>(1, static_cast<double>(outcome.tokens - 1));
  return (outcome.first - outcome.scheduled) * 1000 <= static_cast<double>(load.ttft_ms) &&
         (outcome.last - outcome.first) / steps * 1000 <= static_cast<double>(load.gap_ms);
}

}  // namespace

void report_outcomes(const std::string& name, const ServeLoad& load, const std::vector<Outcome>& outcomes,
                     BenchReport& report) {
  std::vector<double> first, gaps, whole, late, refused;
  double end = 0, tokens = 0, good = 0, failed = 0, left = 0;
  for (const Outcome& outcome : outcomes) {
    if (outcome.sent >= 0) late.push_back(outcome.sent - outcome.scheduled);
    if (outcome.status == 429) refused.push_back(outcome.end - outcome.sent);
    left += outcome.left;
    if (!outcome.complete || outcome.first < 0) {
      failed += !outcome.left && outcome.status != 429;
      continue;
    }
    first.push_back(outcome.first - outcome.scheduled);
    whole.push_back(outcome.last - outcome.scheduled);
    gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
    tokens += static_cast<double>(outcome.tokens);
    end = std::max(end, outcome.last);
    good += is_good(outcome, load);
  }
  LatencyRows rows(report, name);
  rows.add("throughput", end > 0 ? tokens / end : 0, "tok/s");
  rows.add("goodput", end > 0 ? good / end : 0, "req/s");
  rows.add("failed", failed, "requests");
  rows.add("left", left, "requests");
  rows.add("refused", static_cast<double>(refused.size()), "requests");
  rows.add_percentiles("first token", first);
  rows.add_percentiles("gap", gaps);
  rows.add_percentiles("end to end", whole);
  rows.add_percentiles("sent late", late);
  if (!refused.empty()) rows.add_percentiles("refusal", refused);
}

void write_outcomes(const std::string& path, double start_s, const std::vector<Outcome>& outcomes) {
  std::ofstream file(path);
  file << nlohmann::json{{"start", start_s}}.dump() << '\n';
  for (const Outcome& outcome : outcomes)
    file << nlohmann::json{{"scheduled", outcome.scheduled}, {"sent", outcome.sent},    {"first", outcome.first},
                           {"last", outcome.last},           {"end", outcome.end},      {"status", outcome.status},
                           {"complete", outcome.complete},   {"left", outcome.left},    {"tokens", outcome.tokens},
                           {"gaps", outcome.gaps},           {"digest", outcome.digest}}
                .dump()
         << '\n';
  check(file.good(), ErrorCode::io_error, "--outcomes {}: it cannot be written", path);
}

}  // namespace weft::bench
