#include "cli/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "cli/device.h"
#include "cli/help.h"
#include "cli/line_editor.h"
#include "cli/line_history.h"
#include "decode/conversation.h"

namespace weft::cli {
namespace {

using decode::Answer;
using decode::Conversation;
using decode::Generator;

constexpr const char* kPrompt = "> ";

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs((fmt::format(format, std::forward<Args>(args)...) + "\n").c_str(), stderr);
}

// Messages, from a terminal that edits its lines or line by line.
class Messages {
 public:
  explicit Messages(const RunOptions& options) {
    if (LineEditor::usable()) editor_.emplace(options.no_history ? std::string() : default_history_file());
  }
  bool edits() const { return editor_.has_value(); }
  // The next one; none at the end of input. Ctrl-C throws Interrupted.
  std::optional<std::string> next() {
    std::optional<std::string> line = editor_ ? editor_->next(kPrompt) : plain();
    if (!line) std::fputs("\n", stderr);
    return line;
  }

 private:
  std::optional<std::string> plain() {
    std::fputs(kPrompt, stderr);
    std::fflush(stderr);
    try {
      return lines_.next();
    } catch (const Interrupted&) {
      std::fputs("\n", stderr);
      throw;
    }
  }

  std::optional<LineEditor> editor_;
  LineReader lines_;
};

class Chat {
 public:
  Chat(const RunOptions& options, const ModelFile& file, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
       Clock::time_point start, const Context& context)
      : options_(options),
        context_(context),
        tokenizer_(tokenizer),
        template_(chat_template),
        sampling_(choose_sampling(options, file)),
        room_(choose_context(file.config(), options.model, 4096)) {
    begin_anew(options.system);
    engine_ = load_engine(file, options.model, room_);
    load_s_ = seconds_since(start);
    generator_.emplace(*engine_.forward, tokenizer, sampling_.params, sampling_.penalties, options.seed);
    sequence_ = engine_.forward->add_sequence();
  }

  void run() {
    Messages messages(options_);
    say("weft: sampling: {}", to_string(sampling_));
    say("Type a message; Ctrl-C stops an answer, Ctrl-D ends the chat, /help says more.");
    while (!ended_) {
      const std::optional<std::string> line = messages.next();
      if (!line) return;
      if (line->find_first_not_of(" \t\n") == line->npos) continue;
      if (line->front() == '/')
        obey(*line, messages);
      else
        answer(*line);
    }
  }

 private:
  struct Command {
    std::string_view name, other;  // two names of the same; "": there is one
    std::string_view argument, help;
    void (Chat::*run)(const std::string& rest);
  };
  static constexpr const char* kHelp = "/help";

  static std::span<const Command> commands();

  void obey(const std::string& line, const Messages& messages) {
    const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(0, end);
    const size_t begin = line.find_first_not_of(" \t\n", end);
    if (name == kHelp || name == "/?") return help(messages);
    std::vector<std::string> names = {kHelp};
    for (const Command& command : commands()) {
      if (name == command.name || name == command.other)
        return (this->*command.run)(begin == line.npos ? std::string() : line.substr(begin));
      names.emplace_back(command.name);
      if (!command.other.empty()) names.emplace_back(command.other);
    }
    const std::string near = nearest(name, names);
    say("weft: {} is no command; {}", name, near.empty() ? "see /help" : fmt::format("did you mean {}?", near));
    say("weft: a message that begins with / has a space before it");
  }

  void help(const Messages& messages) {
    const auto line = [](std::string_view what, std::string_view does) { say("  {:<17} {}", what, does); };
    line(kHelp, "lists the commands");
    for (const Command& command : commands())
      line(fmt::format("{}{}{}{}{}", command.name, command.other.empty() ? "" : ", ", command.other,
                       command.argument.empty() ? "" : " ", command.argument),
           command.help);
    line("Ctrl-C", "stops an answer; at an empty line it ends the chat");
    line("Ctrl-D", "ends the chat");
    if (!messages.edits()) return;
    line("Up, Down, Ctrl-R", "earlier messages");
    line("Alt-Enter", "breaks the line; pasted lines stay together, too");
  }

  void quit(const std::string&) { ended_ = true; }

  void start_anew(const std::string&) {
    begin_anew(system_);
    say("weft: a new chat");
  }

  void set_system(const std::string& text) {
    try {
      begin_anew(text);
    } catch (const Error& error) {
      begin_anew(system_);
      return say("weft: {}", one_line(error.what()));
    }
    say("weft: a new chat, {}", text.empty() ? "without a system prompt of yours" : "with that system prompt");
  }

  // Throws where the model's template takes no system prompt; the conversation is to be begun again then.
  void begin_anew(const std::string& system) {
    conversation_.emplace(tokenizer_, template_);
    if (!system.empty()) add_system(*conversation_, system);
    system_ = system;
  }

  void answer(const std::string& message) {
    conversation_->add("user", message);
    std::vector<int32_t> ids;
    try {
      ids = conversation_->tokens();
      check(static_cast<int64_t>(ids.size()) < room_, ErrorCode::context_full,
            "the conversation has {} tokens, the context holds {}; begin a new one with /new, or raise --ctx",
            ids.size(), room_);
    } catch (const Error& error) {
      conversation_->drop_last();
      return say("weft: {}", one_line(error.what()));
    }
    // What the conversation shares with what is there stays; at least one token must run for its logits.
    size_t shared = 0;
    while (shared < held_.size() && shared + 1 < ids.size() && held_[shared] == ids[shared]) ++shared;
    engine_.forward->truncate(sequence_, static_cast<int64_t>(shared));
    const Answer answer =
        generator_->answer(sequence_, std::span(ids).subspan(shared), answer_options(options_, room_, context_));
    const auto prompt_tokens = static_cast<int64_t>(ids.size());
    print_end(context_, device_of(options_.model.device), answer,
              {.prompt_tokens = prompt_tokens,
               .computed_tokens = prompt_tokens - static_cast<int64_t>(shared),
               .load_s = load_s_},
              sampling_);
    held_ = ids;
    held_.insert(held_.end(), answer.ids.begin(), answer.ids.end());
    held_.resize(
        static_cast<size_t>(std::min<int64_t>(engine_.forward->length(sequence_), static_cast<int64_t>(held_.size()))));
    if (answer.ids.empty() && answer.finish == "interrupted")
      conversation_->drop_last();  // nothing was said to it
    else
      conversation_->add("assistant", answer.text);
    if (interrupted) listen_for_interrupt();  // it stopped the answer, not the chat
  }

  const RunOptions& options_;
  const Context& context_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  Sampling sampling_;
  int64_t room_;
  Engine engine_;
  double load_s_ = 0;
  std::optional<Generator> generator_;
  ForwardPass::SequenceId sequence_ = 0;
  std::optional<Conversation> conversation_;
  std::string system_;
  std::vector<int32_t> held_;  // the tokens whose keys and values the sequence holds
  bool ended_ = false;
};

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kCommands[] = {
      {"/new", "/clear", "", "begins a new chat; the system prompt stays", &Chat::start_anew},
      {"/system", "", "TEXT", "begins a new chat with that system prompt, or none", &Chat::set_system},
      {"/quit", "/exit", "", "ends the chat", &Chat::quit}};
  return kCommands;
}

}  // namespace

void chat(const RunOptions& options, const ModelFile& file, const Tokenizer& tokenizer,
          const ChatTemplate& chat_template, Clock::time_point start, const Context& context) {
  Chat(options, file, tokenizer, chat_template, start, context).run();
}

}  // namespace weft::cli
