// `weft run`: answers a prompt, or chats.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/run_options.h"
#include "decode/conversation.h"
#include "decode/generate.h"
#include "device/cpu/cgroup.h"
#include "weft/model.h"

namespace weft::cli {
namespace {

using decode::Answer;
using decode::Conversation;
using decode::Generator;

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
  check(chat_template || options.system.empty(), ErrorCode::invalid_argument,
        "--system is given, and there is no chat template to put it in (--raw, or a model without one); leave it out");
  if (chat_template) {
    Conversation conversation(tokenizer, *chat_template);
    if (!options.system.empty()) add_system(conversation, options.system);
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

void print_figures(const Answer& answer, const Prompt& prompt, const Sampling& sampling) {
  const auto rate = [](bool known, double tokens_a_second) {
    return known ? fmt::format(" at {:.0f}/s", tokens_a_second) : std::string();
  };
  const std::optional<double> prefill = prefill_rate(answer, prompt.prompt_tokens);
  const double decode = answer.decode_tok_s();
  std::fputs(fmt::format("weft: loaded in {:.2f} s, {} prompt tokens{}, {} answer tokens{} ({}), {:.0f} MB; "
                         "sampling: {}\n",
                         prompt.load_s, prompt.prompt_tokens, rate(prefill.has_value(), prefill.value_or(0)),
                         answer.ids.size(), rate(decode > 0, decode), answer.finish,
                         static_cast<double>(peak_memory()) / 1e6, to_string(sampling))
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
  const Sampling sampling = choose_sampling(options, file);
  const Engine engine = load_engine(file, options.model, room);
  const Prompt figures{.prompt_tokens = prompt_count, .computed_tokens = prompt_count, .load_s = seconds_since(start)};

  Generator generator(*engine.forward, tokenizer, sampling.params, sampling.penalties, options.seed);
  const Answer answer =
      generator.answer(engine.forward->add_sequence(), prompt, answer_options(options, room, context));
  print_end(context, device_of(options.model.device), answer, figures, sampling);
  if (!context.json) print_figures(answer, figures, sampling);
  if (answer.finish == "interrupted") context.exit_code = kInterrupted;
}

void run(const RunOptions& options, Context& context) {
  const auto start = Clock::now();
  check_model_options(options.model);
  const ModelFile file = from_file([&] { return ModelFile(options.model.model); });
  const Tokenizer tokenizer = from_file([&] { return Tokenizer(file); });
  const std::optional<ChatTemplate> chat_template = read_template(file, options.raw);
  if (!options.input.given() && isatty(STDIN_FILENO) == 1) {
    check(chat_template.has_value(), ErrorCode::invalid_argument,
          "a chat needs a chat template, and there is none (--raw, or a model without one); give a prompt with -p");
    return chat(options, file, tokenizer, *chat_template, start, context);
  }
  answer_once(options, file, tokenizer, chat_template, start, context);
}

}  // namespace

void add_run(Program& program, Context& context) {
  constexpr const char* kModels = "the model's";  // file or family
  Verb verb = program.verb("run", "Answer a prompt; without one, on a terminal, chat");
  auto options = std::make_shared<RunOptions>();
  add_model_options(verb, options->model);
  add_text_options(verb, options->input, "The prompt; default: stdin, and on a terminal a chat");
  verb.option("-n,--num-tokens", options->num_tokens, "Most tokens of the answer; -1: as many as the context holds")
      .allows("1 and more, or -1 for no limit", [](double n) { return n >= 1 || n == -1; });
  verb.option("--system", options->system, "The system prompt; default: what the model's template has");
  verb.flag("--raw", options->raw, "No chat template: the model continues the text");
  options->temperature =
      verb.option("--temp", options->sampling.temperature, "Temperature; 0: always the most probable token")
          .range(0, 100)
          .shown_default(kModels);
  options->top_k = verb.option("--top-k", options->sampling.top_k, "Only the K most probable tokens; 0: all")
                       .allows("0 (off) and more", [](double k) { return k >= 0; })
                       .shown_default(kModels);
  options->top_p =
      verb.option("--top-p", options->sampling.top_p, "Only the most probable tokens that sum up to P; 1: all")
          .allows("above 0 to 1 (off)", [](double p) { return p > 0 && p <= 1; })
          .shown_default(kModels);
  options->min_p =
      verb.option("--min-p", options->sampling.min_p, "Only tokens with P times the best one's probability; 0: all")
          .allows("0 (off) to 1", [](double p) { return p >= 0 && p <= 1; })
          .shown_default(kModels);
  options->repetition =
      verb.option("--repetition-penalty", options->penalties.repetition,
                  "Divides the logits of tokens that prompt or answer holds; 1: off")
          .allows("above 0 to 100, 1 is off", [](double penalty) { return penalty > 0 && penalty <= 100; })
          .shown_default(kModels);
  verb.option("--presence-penalty", options->penalties.presence, "Subtracted from tokens that the answer holds")
      .range(-100, 100);
  verb.option("--frequency-penalty", options->penalties.frequency, "The same, once for each time it holds them")
      .range(-100, 100);
  verb.option("--seed", options->seed, "Seed of the random draws");
  verb.flag("--no-history", options->no_history, "A chat keeps nothing of what is typed");
  verb.example("weft run model.gguf -p \"Why is the sky blue?\" -n 100");
  verb.runs([options, &context] { run(*options, context); });
}

}  // namespace weft::cli
