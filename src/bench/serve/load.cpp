// `weft bench serve`: a trace against a server that speaks OpenAI's completions.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "bench/measure.h"
#include "bench/serve/client.h"
#include "bench/serve/trace.h"

namespace weft::bench {
namespace {

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(at), values.end());
  return values[at];
}

class Rows {
 public:
  Rows(BenchReport& report, std::string name) : report_(report), name_(std::move(name)) {}
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

std::vector<Ask> asks_of(const std::vector<Arrival>& arrivals, const std::string& model, int32_t vocabulary) {
  std::vector<Ask> asks;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    const nlohmann::json body = {{"model", model},
                                 {"prompt", prompt_of(arrivals[i], i, vocabulary)},
                                 {"max_tokens", arrivals[i].output_tokens},
                                 {"temperature", 0},
                                 {"ignore_eos", true},
                                 {"stream", true},
                                 {"stream_options", {{"include_usage", true}}}};
    asks.push_back({arrivals[i].at_s, body.dump()});
  }
  return asks;
}

}  // namespace

void measure_serve(const BenchOptions& options, BenchReport& report) {
  const ServeLoad& load = options.load;
  check(!load.url.empty(), ErrorCode::invalid_argument, "bench serve: no server is given; start one and give --url");
  const Url url = parse_url(load.url);
  std::vector<Arrival> arrivals = load.trace.empty() ? poisson(load.requests, static_cast<double>(load.rate),
                                                               load.prompt_tokens, load.output_tokens, 1)
                                                     : read_trace(load.trace);
  shape(arrivals, {.requests = load.requests,
                   .speed = load.trace.empty() ? 1. : static_cast<double>(load.rate),
                   .at_once = load.at_once,
                   .divide = load.divide,
                   .most_prompt = load.most_prompt,
                   .most_output = load.most_output});
  const nlohmann::json models = nlohmann::json::parse(fetch(url, "/v1/models", load.api_key));
  const std::vector<Ask> asks =
      asks_of(arrivals, models.at("data").at(0).at("id"), static_cast<int32_t>(load.vocabulary));
  report.note(
      fmt::format("{} requests over {:.1f} s to {}; times in ms, client included; goodput: first token within {} ms, "
                  "mean gap within {} ms",
                  asks.size(), arrivals.back().at_s, load.url, load.ttft_ms, load.gap_ms));

  const std::vector<Outcome> outcomes = play(url, asks, load.api_key);
  std::vector<double> first, gaps, whole, late;
  double end = 0, tokens = 0, good = 0, failed = 0;
  for (const Outcome& outcome : outcomes) {
    late.push_back(outcome.sent - outcome.scheduled);
    if (!outcome.complete || outcome.first < 0) {
      ++failed;
      continue;
    }
    first.push_back(outcome.first - outcome.scheduled);
    whole.push_back(outcome.last - outcome.scheduled);
    gaps.insert(gaps.end(), outcome.gaps.begin(), outcome.gaps.end());
    tokens += static_cast<double>(outcome.tokens);
    end = std::max(end, outcome.last);
    const double steps = std::max<double>(1, static_cast<double>(outcome.tokens - 1));
    good += first.back() * 1000 <= static_cast<double>(load.ttft_ms) &&
            (outcome.last - outcome.first) / steps * 1000 <= static_cast<double>(load.gap_ms);
  }
  Rows rows(report, load.trace.empty() ? "poisson" : load.trace.substr(load.trace.rfind('/') + 1));
  rows.add("throughput", end > 0 ? tokens / end : 0, "tok/s");
  rows.add("goodput", end > 0 ? good / end : 0, "req/s");
  rows.add("failed", failed, "requests");
  rows.add_percentiles("first token", first);
  rows.add_percentiles("gap", gaps);
  rows.add_percentiles("end to end", whole);
  rows.add_percentiles("sent late", late);
}

}  // namespace weft::bench
