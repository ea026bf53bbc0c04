// `weft bench serve`: a trace against a server that speaks OpenAI's completions.
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "bench/measure.h"
#include "bench/serve/client.h"
#include "bench/serve/outcomes.h"
#include "bench/serve/trace.h"
#include "bench/stop.h"

namespace weft::bench {
namespace {

using nlohmann::json;

std::vector<Arrival> arrivals_of(const BenchOptions& options) {
  const ServeLoad& load = options.load;
  const auto rate = static_cast<double>(load.rate);
  const bool process = load.trace.empty();
  std::vector<Arrival> arrivals =
      process ? poisson({.requests = load.requests,
                         .per_second = rate,
                         .last_per_second = load.ramp > 0 ? static_cast<double>(load.ramp) : rate,
                         .prompt_tokens = load.prompt_tokens,
                         .output_tokens = load.output_tokens,
                         .seed = load.seed})
              : parse_trace(load.trace, options.read_file(load.trace), load.requests, load.seed);
  shape(arrivals, {.requests = load.requests,
                   .speed = process ? 1. : rate,
                   .at_once = load.at_once,
                   .divide = load.divide,
                   .most_prompt = load.most_prompt,
                   .most_output = load.most_output});
  return arrivals;
}

// A share of clients leaves, in each phase alike.
Leave leave_of(const Arrival& arrival, double share, std::mt19937_64& random) {
  const auto draw = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
  if (draw() >= share) return {};
  const auto when = static_cast<Leave::When>(1 + random() % 3);
  const double most = when == Leave::When::reading ? static_cast<double>(arrival.output_tokens) : 1;
  return {when, draw() * most};
}

json body_of(const Arrival& arrival, size_t number, const std::string& model, const ServeLoad& load) {
  json body = {{"model", model},
               {"prompt", prompt_of(arrival, load.same_prompt ? 0 : number + (load.seed - 1) * 1000003,
                                    static_cast<int32_t>(load.vocabulary))},
               {"max_tokens", arrival.output_tokens},
               {"temperature", load.temperature},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (load.choices > 1) body["n"] = load.choices;
  if (load.top_p < 1) body["top_p"] = load.top_p;
  if (load.reproducible) body["reproducible"] = true;
  return body;
}

// As JSON lines, for engines that no server stands in front of.
void save_load(const std::string& path, const std::vector<Ask>& asks) {
  std::ofstream file(path);
  for (const Ask& ask : asks) file << "{\"at\":" << ask.at_s << ",\"body\":" << ask.body << "}\n";
  check(file.good(), ErrorCode::io_error, "--save {}: it cannot be written", path);
}

}  // namespace

void measure_serve(const BenchOptions& options, BenchReport& report) {
  const ServeLoad& load = options.load;
  check(!load.url.empty() || !load.save.empty(), ErrorCode::invalid_argument,
        "bench serve: no server is given; start one and give --url");
  const std::vector<Arrival> arrivals = arrivals_of(options);
  std::string model = "model";
  if (!load.url.empty())
    model = json::parse(fetch(parse_url(load.url), "/v1/models", load.api_key)).at("data").at(0).at("id");
  std::vector<Ask> asks;
  std::mt19937_64 random(load.seed);
  for (const Arrival& arrival : arrivals)
    asks.push_back({arrival.at_s, body_of(arrival, asks.size(), model, load).dump(),
                    leave_of(arrival, static_cast<double>(load.cancel), random)});
  if (!load.save.empty()) save_load(load.save, asks);
  if (load.url.empty()) return;

  report.note(
      fmt::format("{} requests over {:.1f} s to {}; times in ms, client included; goodput: first token within {} ms, "
                  "mean gap within {} ms",
                  asks.size(), arrivals.back().at_s, load.url, load.ttft_ms, load.gap_ms));
  const double start = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::vector<Outcome> outcomes =
      play(parse_url(load.url), asks, load.api_key,
           {.limit_s = static_cast<double>(load.time_limit), .first_token_s = static_cast<double>(load.give_up)});
  if (!load.outcomes.empty()) write_outcomes(load.outcomes, start, outcomes);
  report_outcomes(load.trace.empty() ? "poisson" : load.trace.substr(load.trace.rfind('/') + 1), load, outcomes,
                  report);
  stop_if_asked();
}

}  // namespace weft::bench
