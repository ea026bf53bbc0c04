// `weft eval`: the log-probability of every next token of a text.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/text_input.h"
#include "weft/device.h"
#include "weft/model.h"
#include "weft/ops.h"

namespace weft::cli {
namespace {

// Rows of logits at once: as many as a step of the model takes, or as this memory holds.
constexpr size_t kMostRows = 512, kLeastRows = 16, kLogitBytes = size_t{128} << 20;

size_t rows_of_step(size_t vocabulary) {
  return std::clamp(kLogitBytes / (vocabulary * sizeof(float)), kLeastRows, kMostRows);
}

struct EvalOptions {
  ModelOptions model;
  TextInput input;
  int top = 0;
  int64_t stride = 0, num_tokens = 0;
};

// One run over tokens [begin, end) from an empty sequence; predictions of tokens before `first` are context only.
struct Window {
  int64_t begin, end, first;
};

// Without a stride one window holds all. With one, each window ends `stride` tokens after the one before, is at most
// `context` long, and scores only its new tokens.
std::vector<Window> make_windows(int64_t tokens, int64_t context, int64_t stride) {
  std::vector<Window> windows = {{0, std::min(tokens, context), 1}};
  while (windows.back().end < tokens) {
    const int64_t first = windows.back().end, end = std::min(tokens, first + stride);
    windows.push_back({std::max<int64_t>(0, end - context), end, first});
  }
  return windows;
}

struct Score {
  double logprob = 0;
  std::vector<std::pair<int32_t, double>> top;
};

// Of each row of logits the score of one id; the rows are dealt over the team, as a row takes long.
std::vector<Score> score_rows(WorkerTeam& team, std::span<const float> logits, std::span<const int32_t> ids,
                              int top_count) {
  std::vector<Score> scores(ids.size());
  const size_t vocabulary = logits.size() / std::max<size_t>(1, ids.size());
  const auto workers = static_cast<size_t>(team.num_workers());
  team.run([&](int worker) {
    for (auto r = static_cast<size_t>(worker); r < ids.size(); r += workers) {
      const std::span<const float> row = logits.subspan(r * vocabulary, vocabulary);
      scores[r] = {log_probability(row, ids[r]), top_log_probabilities(row, top_count)};
    }
  });
  return scores;
}

void print_row(const Context& context, int64_t position, int32_t id, const Tokenizer& tokenizer, const Score& score) {
  const auto& [logprob, top] = score;
  if (context.json) {
    nlohmann::json row = {
        {"position", position}, {"id", id}, {"token", tokenizer.piece(id, false)}, {"logprob", logprob}};
    row["top"] = nlohmann::json::array();
    for (const auto& [other, log_p] : top) row["top"].push_back({other, log_p});
    return print_json(row);
  }
  if (top.empty()) return;
  const auto quoted = [&](int32_t token) {
    return nlohmann::json(tokenizer.piece(token, false)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string line = fmt::format("{:>6} {:>7} {:>9.4f} {}", position, id, logprob, quoted(id));
  for (const auto& [other, log_p] : top) line += fmt::format("  {} {:.3f}", quoted(other), log_p);
  print_out("{}\n", line);
}

void eval(const EvalOptions& options, Context& context) {
  check_model_options(options.model);
  const ModelFile file = from_file([&] { return ModelFile(options.model.model); });
  const Tokenizer tokenizer = from_file([&] { return Tokenizer(file); });
  std::vector<int32_t> ids = tokenizer.encode(read_text(options.input));
  if (options.num_tokens > 0 && static_cast<size_t>(options.num_tokens) < ids.size())
    ids.resize(static_cast<size_t>(options.num_tokens));
  const auto count = static_cast<int64_t>(ids.size());
  check(count >= 2, ErrorCode::invalid_argument, "the text has {} tokens; at least 2 are needed to predict one", count);

  const int64_t room = choose_context(file.config(), options.model, count);
  check(count <= room || options.stride > 0, ErrorCode::context_full,
        "the text has {} tokens, the context holds {}; give --stride N (windows that move on by N tokens), -n N (only "
        "the first N tokens) or a larger --ctx (the model's own is {})",
        count, room, file.config().context_length);
  check(options.stride <= room - 1, ErrorCode::invalid_argument,
        "--stride = {}; allowed are 0 to {}, one less than the context", options.stride, room - 1);
  const Engine engine = load_engine(file, options.model, std::min(room, count));

  double sum = 0;
  int64_t predicted = 0;
  Progress progress("evaluating");
  const auto sequence = engine.forward->add_sequence();
  const auto vocabulary = static_cast<size_t>(file.config().vocab_size);
  const auto most_rows = static_cast<int64_t>(rows_of_step(vocabulary));
  WorkerTeam& team = engine.team ? *engine.team : WorkerTeam::shared();
  for (const Window& window : make_windows(count, room, options.stride)) {
    engine.forward->truncate(sequence, 0);
    // The row of token t predicts token t + 1; the last token of a window predicts nothing in it.
    for (int64_t begin = window.begin; begin < window.end - 1 && !interrupted;) {
      const int64_t end = std::min(window.end - 1, begin + most_rows);
      const std::span<const int32_t> tokens(ids.data() + begin, static_cast<size_t>(end - begin));
      const TensorView logits =
          engine.forward->run({{.sequence = sequence, .tokens = tokens, .logit_rows = ForwardPass::kAllRows}});
      const int64_t first = std::min(end, std::max(begin, window.first - 1));  // rows before it are context
      const auto scored = static_cast<size_t>(end - first);
      const std::span<const int32_t> next(ids.data() + first + 1, scored);
      const std::vector<Score> scores = score_rows(
          team, {logits.as<const float>() + static_cast<size_t>(first - begin) * vocabulary, scored * vocabulary}, next,
          options.top);
      for (size_t r = 0; r < scored; ++r) {
        sum += scores[r].logprob;
        ++predicted;
        print_row(context, first + 1 + static_cast<int64_t>(r), next[r], tokenizer, scores[r]);
      }
      begin = end;
      progress.set(static_cast<double>(end) / static_cast<double>(count));
    }
  }
  progress.done();
  const bool whole = predicted == count - 1;  // else Ctrl-C came before
  const double perplexity = std::exp(-sum / static_cast<double>(std::max<int64_t>(1, predicted)));
  if (context.json) {
    print_json({{"event", "done"},
                {"tokens", predicted},
                {"perplexity", predicted > 0 ? nlohmann::json(perplexity) : nlohmann::json()},
                {"finish", whole ? "end" : "interrupted"}});
  } else {
    print_out("tokens {}{}{}\n", predicted, whole ? "" : fmt::format(" of {}, interrupted", count - 1),
              predicted > 0 ? fmt::format("  perplexity {:.4f}", perplexity) : "");
  }
  if (interrupted) context.exit_code = kInterrupted;
}

}  // namespace

void add_eval(Program& program, Context& context) {
  Verb verb = program.verb("eval", "Log-probability of every next token of a text, and perplexity");
  auto options = std::make_shared<EvalOptions>();
  const auto is_count = [](double count) { return count >= 0; };
  add_model_options(verb, options->model);
  add_text_options(verb, options->input, "The text; default: stdin");
  verb.option("--top", options->top, "Also the K most probable tokens at each position")
      .allows("0 (none) and more", is_count);
  verb.option("--stride", options->stride,
              "For a text longer than the context: windows that move on by N tokens; 0: refuse it")
      .allows("0 (off) and more", is_count);
  verb.option("-n,--num-tokens", options->num_tokens, "Only the first N tokens; 0: all")
      .allows("0 (all) and more", is_count);
  verb.example("weft eval model.gguf -f text.txt --json");
  verb.runs([options, &context] { eval(*options, context); });
}

}  // namespace weft::cli
