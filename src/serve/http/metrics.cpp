#include "serve/http/metrics.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "serve/http/json.h"

namespace weft::serve::http {
namespace {

class Text {
 public:
  template <class Value>
  void add(const char* kind, const char* name, const char* help, Value value) {
    head(kind, name, help);
    fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
  }
  void add(const char* name, const char* help, const Histogram& histogram) {
    head("histogram", name, help);
    uint64_t below = 0;
    for (int bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
      below += histogram.counts[static_cast<size_t>(bucket)];
      fmt::format_to(std::back_inserter(text_), "{}_bucket{{le=\"{}\"}} {}\n", name, Histogram::upper_end(bucket),
                     below);
    }
    fmt::format_to(std::back_inserter(text_), "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name,
                   histogram.count, histogram.sum);
  }
  void head(const char* kind, const char* name, const char* help) {
    fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
  }
  std::string text_;
};

}  // namespace

std::string metrics_text(const EngineStats& s, const Service::Counts& transport, const LimitsMet& limits,
                         uint64_t responses_by_class[6]) {
  Text text;
  text.add("gauge", "weft_requests_running", "Requests that run.", s.requests_running);
  text.add("gauge", "weft_requests_waiting", "Requests that wait.", s.requests_waiting);
  text.add("gauge", "weft_tokens_waiting", "Prompt tokens of requests that wait.", s.tokens_waiting);
  text.add("gauge", "weft_pages", "Pages of the pool.", s.pages);
  text.add("gauge", "weft_pages_free", "Pages that nobody holds.", s.pages_free);
  text.add("gauge", "weft_pages_cached", "Pages that the prefix cache holds.", s.pages_cached);
  text.add("gauge", "weft_pages_evictable", "Pages of the prefix cache that no running request uses.",
           s.pages_evictable);
  text.add("counter", "weft_steps_total", "Steps of the model.", s.steps);
  text.add("counter", "weft_prompt_tokens_total", "Prompt tokens of requests that arrived.", s.prompt_tokens);
  text.add("counter", "weft_prompt_tokens_computed_total", "Prompt tokens that went through the model.",
           s.prompt_tokens_computed);
  text.add("counter", "weft_output_tokens_total", "Tokens of answers.", s.output_tokens);
  text.add("counter", "weft_requests_finished_total", "Requests that were answered.", s.requests_finished);
  text.add("counter", "weft_requests_cancelled_total", "Requests whose client left before their end.",
           s.requests_cancelled);
  text.add("counter", "weft_requests_failed_total", "Requests that failed, or whose time was over.", s.requests_failed);
  text.add("counter", "weft_requests_refused_total", "Requests that the queue did not take.", s.requests_refused);
  text.add("counter", "weft_preemptions_total", "Requests that gave their pages to older ones.", s.preemptions);
  text.add("gauge", "weft_connections", "Open connections.", transport.connections);
  text.add("gauge", "weft_bodies_waiting", "Bodies that wait to be read, or are being read.", transport.bodies_waiting);
  text.add("counter", "weft_connections_refused_total", "Connections beyond the limit.", transport.refused_connections);
  text.add("counter", "weft_connections_timed_out_total", "Connections that were too slow.", transport.timeouts);
  text.add("counter", "weft_stalls_total", "Generations that paused for a client that did not read.", transport.stalls);
  text.add("counter", "weft_accept_failures_total", "Connections that the system had no descriptor or memory for.",
           transport.accept_failures);
  text.add("counter", "weft_transport_failures_total", "Connections that ended for want of memory.",
           transport.failures);
  text.add("counter", "weft_log_failures_total", "Lines of the log that could not be written.", transport.log_failures);
  text.head("counter", "weft_limits_met_total", "What a limit refused, ended or paused, by its option.");
  for (size_t i = 0; i < std::size(kLimitNames); ++i)
    text.text_ +=
        fmt::format("weft_limits_met_total{{limit=\"{}\"}} {}\n", kLimitNames[i], limits.count(static_cast<Limit>(i)));
  text.head("counter", "weft_http_responses_total", "Responses by class of status.");
  for (int i = 2; i < 6; ++i)
    text.text_ += fmt::format("weft_http_responses_total{{class=\"{}xx\"}} {}\n", i, responses_by_class[i]);
  text.add("weft_time_to_first_token_seconds", "From a request's arrival to its first token.", s.time_to_first_token);
  text.add("weft_token_gap_seconds", "Between two tokens of a choice.", s.token_gap);
  text.add("weft_queue_seconds", "From a request's arrival to its first step.", s.queue);
  text.add("weft_step_seconds", "Of a step.", s.step);
  return std::move(text.text_);
}

std::string inside_json(const EngineStats& stats, const EngineView& view) {
  using nlohmann::json;
  json requests = json::array(), prefixes = json::array();
  for (const RunningRequest& r : view.requests)
    requests.push_back({{"id", r.id},
                        {"running", r.running},
                        {"prompt_tokens", r.prompt_tokens},
                        {"computed_tokens", r.computed_tokens},
                        {"output_tokens", r.output_tokens},
                        {"choices", r.choices},
                        {"age_s", r.age_s}});
  for (const CachedPrefix& p : view.prefixes)
    prefixes.push_back({{"depth", p.depth}, {"tokens", p.tokens}, {"users", p.users}});
  return dump({{"requests", requests},
               {"prefixes", prefixes},
               {"step_s", view.step_s},
               {"pages", stats.pages},
               {"pages_free", stats.pages_free},
               {"pages_cached", stats.pages_cached},
               {"requests_running", stats.requests_running},
               {"requests_waiting", stats.requests_waiting},
               {"output_tokens", stats.output_tokens}});
}

}  // namespace weft::serve::http
