// `weft run`: answers a prompt, or chats.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/text_input.h"
#include "decode/conversation.h"
#include "decode/generate.h"
#include "weft/model.h"

namespace weft::cli {
namespace {

using decode::Answer;
using decode::AnswerOptions;
using decode::Conversation;
using decode::Generator;

struct RunOptions {
  ModelOptions model;
  TextInput input;
  int64_t num_tokens = 512;
  bool raw = false;
  SamplingParams sampling{.temperature = 0.f, .top_k = 0, .top_p = 1.f, .min_p = 0.f};
  Penalties penalties;
  uint64_t seed = 0;
};

// The model's template around a conversation; none for --raw and for a model without one.
std::optional<ChatTemplate> read_template(const ModelFile& file, bool raw) {
  if (raw) return std::nullopt;
  if (!file.has("tokenizer.chat_template")) {
    std::fputs("weft: the model has no chat template; the prompt goes in as it is, as with --raw\n", stderr);
    return std::nullopt;
  }
  return from_file([&] { return ChatTemplate(file.get_string("tokenizer.chat_template")); });
}

std::vector<int32_t> prompt_tokens(const RunOptions& options, const Tokenizer& tokenizer,
                                   const std::optional<ChatTemplate>& chat_template) {
  const std::string text = read_text(options.input);
  if (chat_template) {
    Conversation conversation(tokenizer, *chat_template);
    conversation.add("user", text);
    return conversation.tokens();
  }
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
  // A model can only go on from something: an empty prompt is BOS.
  if (ids.empty() && tokenizer.bos() >= 0) ids.push_back(tokenizer.bos());
  check(!ids.empty(), ErrorCode::invalid_argument,
        "the prompt is empty and the model has no BOS token; give it a text");
  return ids;
}

void print_text(std::string_view text) {
  write_out(text);
  flush_out();
}

void print_token(const Context& context, int32_t id, std::string_view text) {
  if (!context.json) return print_text(text);
  print_json({{"event", "token"}, {"id", id}, {"text", text}});
}

// Printed as it comes, until Ctrl-C; `room`: tokens of context.
AnswerOptions answer_options(const RunOptions& options, int64_t room, const Context& context) {
  return {.max_tokens = options.num_tokens < 0 ? room : options.num_tokens,
          .context = room,
          .on_token = [&context](int32_t id, std::string_view text) { print_token(context, id, text); },
          .stopped = [] { return interrupted.load(); }};
}

struct Prompt {
  int64_t prompt_tokens, computed_tokens;  // of a conversation only what is new is computed
  double load_s;
};

double prefill_rate(const Answer& answer, int64_t tokens) {
  return answer.prefill_s > 0 ? static_cast<double>(tokens) / answer.prefill_s : 0;
}

// What ends an answer on stdout.
void print_end(const Context& context, Device device, const Answer& answer, const Prompt& prompt) {
  if (!context.json) return print_text("\n");
  print_json({{"event", "done"},
              {"prompt_tokens", prompt.prompt_tokens},
              {"output_tokens", answer.ids.size()},
              {"ids", answer.ids},
              {"text", answer.text},
              {"finish", answer.finish},
              {"load_s", prompt.load_s},
              {"prefill_s", answer.prefill_s},
              {"prefill_tok_s", prefill_rate(answer, prompt.computed_tokens)},
              {"decode_tok_s", answer.decode_tok_s()},
              {"peak_rss_bytes", peak_rss_bytes()},
              {"device", to_string(device)}});
}

void print_figures(const Answer& answer, int64_t prompt_tokens, double load_s) {
  std::fputs(fmt::format("weft: loaded in {:.2f} s, {} prompt tokens at {:.0f}/s, {} answer tokens at {:.0f}/s ({}), "
                         "{:.0f} MB\n",
                         load_s, prompt_tokens, prefill_rate(answer, prompt_tokens), answer.ids.size(),
                         answer.decode_tok_s(), answer.finish, static_cast<double>(peak_rss_bytes()) / 1e6)
                 .c_str(),
             stderr);
}

void answer_once(const RunOptions& options, const ModelFile& file, const Tokenizer& tokenizer,
                 const std::optional<ChatTemplate>& chat_template, Clock::time_point start, Context& context) {
  const std::vector<int32_t> prompt = prompt_tokens(options, tokenizer, chat_template);
  const auto prompt_count = static_cast<int64_t>(prompt.size());
  const int64_t room =
      choose_context(file.config(), options.model, prompt_count + std::max<int64_t>(options.num_tokens, 0));
  check(prompt_count <= room, ErrorCode::context_full,
        "the prompt has {} tokens, the context holds {}; shorten it or raise --ctx (the model's own is {})",
        prompt_count, room, file.config().context_length);
  const Engine engine = load_engine(file, options.model, room);
  const double load_s = seconds_since(start);

  Generator generator(*engine.forward, tokenizer, options.sampling, options.penalties, options.seed);
  const Answer answer =
      generator.answer(engine.forward->add_sequence(), prompt, answer_options(options, room, context));
  print_end(context, device_of(options.model.device), answer,
            {.prompt_tokens = prompt_count, .computed_tokens = prompt_count, .load_s = load_s});
  if (!context.json) print_figures(answer, prompt_count, load_s);
  if (answer.finish == "interrupted") context.exit_code = kInterrupted;
}

// The next message; none at the end of input. Ctrl-C here, where no answer runs, ends the chat.
std::optional<std::string> ask(LineReader& lines) {
  std::fputs("> ", stderr);
  std::fflush(stderr);
  try {
    if (auto line = lines.next()) return line;
  } catch (const Interrupted&) {
    std::fputs("\n", stderr);
    throw;
  }
  std::fputs("\n", stderr);
  return std::nullopt;
}

void chat(const RunOptions& options, const ModelFile& file, const Tokenizer& tokenizer,
          const std::optional<ChatTemplate>& chat_template, Clock::time_point start, const Context& context) {
  check(chat_template.has_value(), ErrorCode::invalid_argument,
        "a chat needs a chat template, and there is none (--raw, or a model without one); give a prompt with -p");
  const int64_t room = choose_context(file.config(), options.model, 4096);
  const Engine engine = load_engine(file, options.model, room);
  const double load_s = seconds_since(start);
  Generator generator(*engine.forward, tokenizer, options.sampling, options.penalties, options.seed);
  const auto sequence = engine.forward->add_sequence();
  Conversation conversation(tokenizer, *chat_template);
  std::vector<int32_t> held;  // the tokens whose keys and values the sequence holds
  std::fputs("Type a message; Ctrl-C stops an answer, Ctrl-D ends the chat.\n", stderr);
  LineReader lines;
  while (const auto line = ask(lines)) {
    if (line->empty()) continue;
    conversation.add("user", *line);
    const std::vector<int32_t> ids = conversation.tokens();
    // What the conversation shares with what is there stays; at least one token must run for its logits.
    size_t shared = 0;
    while (shared < held.size() && shared + 1 < ids.size() && held[shared] == ids[shared]) ++shared;
    if (static_cast<int64_t>(ids.size()) >= room) {
      std::fputs("weft: the conversation fills the context; start a new one or raise --ctx\n", stderr);
      conversation.drop_last();
      continue;
    }
    engine.forward->truncate(sequence, static_cast<int64_t>(shared));
    const Answer answer =
        generator.answer(sequence, std::span(ids).subspan(shared), answer_options(options, room, context));
    const auto prompt_tokens = static_cast<int64_t>(ids.size());
    print_end(context, device_of(options.model.device), answer,
              {.prompt_tokens = prompt_tokens,
               .computed_tokens = prompt_tokens - static_cast<int64_t>(shared),
               .load_s = load_s});
    held = ids;
    held.insert(held.end(), answer.ids.begin(), answer.ids.end());
    held.resize(
        static_cast<size_t>(std::min<int64_t>(engine.forward->length(sequence), static_cast<int64_t>(held.size()))));
    conversation.add("assistant", answer.text);
    if (interrupted) listen_for_interrupt();  // it stopped the answer, not the chat
  }
}

void run(const RunOptions& options, Context& context) {
  const auto start = Clock::now();
  check_model_options(options.model);
  const ModelFile file = from_file([&] { return ModelFile(options.model.model); });
  const Tokenizer tokenizer = from_file([&] { return Tokenizer(file); });
  const std::optional<ChatTemplate> chat_template = read_template(file, options.raw);
  if (!options.input.given() && isatty(STDIN_FILENO) == 1)
    return chat(options, file, tokenizer, chat_template, start, context);
  answer_once(options, file, tokenizer, chat_template, start, context);
}

}  // namespace

void add_run(Program& program, Context& context) {
  Verb verb = program.verb("run", "Answer a prompt; without one, on a terminal, chat");
  auto options = std::make_shared<RunOptions>();
  add_model_options(verb, options->model);
  add_text_options(verb, options->input, "The prompt; default: stdin, and on a terminal a chat");
  verb.option("-n,--num-tokens", options->num_tokens, "Most tokens of the answer; -1: as many as the context holds")
      .allows("1 and more, or -1 for no limit", [](double n) { return n >= 1 || n == -1; });
  verb.flag("--raw", options->raw, "No chat template: the model continues the text");
  verb.option("--temp", options->sampling.temperature, "Temperature; 0: always the most probable token").range(0, 100);
  verb.option("--top-k", options->sampling.top_k, "Only the K most probable tokens; 0: all")
      .allows("0 (off) and more", [](double k) { return k >= 0; });
  verb.option("--top-p", options->sampling.top_p, "Only the most probable tokens that sum up to P; 1: all")
      .allows("above 0 to 1 (off)", [](double p) { return p > 0 && p <= 1; });
  verb.option("--min-p", options->sampling.min_p, "Only tokens with P times the best one's probability; 0: all")
      .allows("0 (off) to 1", [](double p) { return p >= 0 && p <= 1; });
  verb.option("--repetition-penalty", options->penalties.repetition,
              "Divides the logits of tokens that prompt or answer holds; 1: off")
      .allows("above 0 to 100, 1 is off", [](double penalty) { return penalty > 0 && penalty <= 100; });
  verb.option("--presence-penalty", options->penalties.presence, "Subtracted from tokens that the answer holds")
      .range(-100, 100);
  verb.option("--frequency-penalty", options->penalties.frequency, "The same, once for each time it holds them")
      .range(-100, 100);
  verb.option("--seed", options->seed, "Seed of the random draws");
  verb.example("weft run model.gguf -p \"Why is the sky blue?\" -n 100");
  verb.runs([options, &context] { run(*options, context); });
}

}  // namespace weft::cli
