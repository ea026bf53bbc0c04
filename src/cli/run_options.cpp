#include "cli/run_options.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/output.h"
#include "device/cpu/cgroup.h"
#include "models/sampling_defaults.h"

namespace weft::cli {
namespace {

std::string without_code(const Error& error) {
  return std::string(error.what()).substr(to_string(error.code()).size() + 2);
}

void print_text(std::string_view text) {
  write_out(text);
  flush_out();
}

void print_token(const Context& context, int32_t id, std::string_view text) {
  if (!context.json) return print_text(text);
  print_json({{"event", "token"}, {"id", id}, {"text", text}});
}

nlohmann::json to_json(const Sampling& sampling) {
  nlohmann::json object = nlohmann::json::parse(weft::to_json(sampling.params, sampling.penalties));
  if (sampling.penalties.presence != 0) object["presence_penalty"] = sampling.penalties.presence;
  if (sampling.penalties.frequency != 0) object["frequency_penalty"] = sampling.penalties.frequency;
  object["source"] = sampling.source.empty() ? nlohmann::json() : nlohmann::json(sampling.source);
  return object;
}

}  // namespace

Sampling choose_sampling(const RunOptions& options, const ModelFile& file) {
  Sampling sampling{options.sampling, options.penalties, ""};
  const auto defaults = from_file([&] { return sampling_defaults(file); });
  if (!defaults) return sampling;
  const SamplingParams& model = defaults->params;
  if (!options.temperature.given()) sampling.params.temperature = model.temperature;
  if (!options.top_k.given()) sampling.params.top_k = model.top_k;
  if (!options.top_p.given()) sampling.params.top_p = model.top_p;
  if (!options.min_p.given()) sampling.params.min_p = model.min_p;
  if (!options.repetition.given()) sampling.penalties.repetition = defaults->penalties.repetition;
  sampling.source = defaults->source;
  return sampling;
}

std::string to_string(const Sampling& sampling) {
  const std::string text = weft::to_string(sampling.params, sampling.penalties);
  return sampling.source.empty() ? text : fmt::format("{} ({})", text, sampling.source);
}

void add_system(decode::Conversation& conversation, const std::string& system) {
  const auto tokens_with = [&](const std::string& text) {
    conversation.add("system", text);
    conversation.add("user", "?");
    const std::vector<int32_t> ids = conversation.tokens();
    conversation.drop_last();
    conversation.drop_last();
    return ids;
  };
  std::vector<int32_t> ids;
  try {
    ids = tokens_with(system);
  } catch (const Error& error) {
    fail(error.code(), "the model's chat template takes no system prompt: {}", without_code(error));
  }
  check(ids != tokens_with(system + "?"), ErrorCode::invalid_argument,
        "the model's chat template leaves a system prompt out; put it into the message");
  conversation.add("system", system);
}

decode::AnswerOptions answer_options(const RunOptions& options, int64_t room, const Context& context) {
  return {.max_tokens = options.num_tokens < 0 ? room : options.num_tokens,
          .context = room,
          .on_token = [&context](int32_t id, std::string_view text) { print_token(context, id, text); },
          .stopped = [] { return interrupted.load(); }};
}

std::optional<double> prefill_rate(const decode::Answer& answer, int64_t tokens) {
  return answer.prefill_s > 0 ? std::optional(static_cast<double>(tokens) / answer.prefill_s) : std::nullopt;
}

void print_end(const Context& context, Device device, const decode::Answer& answer, const Prompt& prompt,
               const Sampling& sampling) {
  if (!context.json) return print_text("\n");
  const auto or_null = [](bool known, double value) { return known ? nlohmann::json(value) : nlohmann::json(); };
  const std::optional<double> rate = prefill_rate(answer, prompt.computed_tokens);
  const double decode_rate = answer.decode_tok_s();
  print_json({{"event", "done"},
              {"prompt_tokens", prompt.prompt_tokens},
              {"output_tokens", answer.ids.size()},
              {"ids", answer.ids},
              {"text", answer.text},
              {"finish", answer.finish},
              {"sampling", to_json(sampling)},
              {"load_s", prompt.load_s},
              {"prefill_s", or_null(rate.has_value(), answer.prefill_s)},
              {"prefill_tok_s", or_null(rate.has_value(), rate.value_or(0))},
              {"decode_tok_s", or_null(decode_rate > 0, decode_rate)},
              {"peak_rss_bytes", peak_memory()},
              {"device", to_string(device)}});
}

}  // namespace weft::cli
