#include "cli/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include "base/check.h"
#include "cli/environment.h"
#include "cli/help.h"
#include "cli/number.h"
#include "cli/output.h"

namespace weft::cli {
namespace {

// "-n/--num-tokens".
std::string all_names(const CLI::Option& option) {
  std::string names = option.get_name(false, true);
  std::replace(names.begin(), names.end(), ',', '/');
  return names;
}

Option add_text(CLI::App& app, const std::string& names, std::string& value, const std::string& help) {
  CLI::Option* option = app.add_option(names, value, help);
  if (!value.empty()) option->capture_default_str();
  return Option(option);
}

// An option whose words `read(name, words)` turns into numbers.
template <class Read>
CLI::Option* add_words(CLI::App& app, const std::string& names, const std::string& help, const std::string& type,
                       const Read& read) {
  auto name = std::make_shared<std::string>();
  CLI::Option* option = app.add_option(
      names,
      [name, read](const CLI::results_t& words) {
        read(*name, words);
        return true;
      },
      help);
  *name = all_names(*option);
  option->type_name(type);
  return option;
}

template <class Value>
Option add_number(CLI::App& app, const std::string& names, Value& value, const std::string& help, const char* type) {
  auto allowed = std::make_shared<Allowed>();
  CLI::Option* option = add_words(app, names, help, type,
                                  [allowed, &value](const std::string& name, const std::vector<std::string>& words) {
                                    value = parse_number<Value>(name, words.front(), *allowed);
                                  });
  option->default_str(fmt::format("{}", value));
  return Option(option, std::move(allowed));
}

Option add_list(CLI::App& app, const std::string& names, std::vector<int>& values, const std::string& help) {
  auto allowed = std::make_shared<Allowed>();
  CLI::Option* option = add_words(app, names, help, "INT",
                                  [allowed, &values](const std::string& name, const std::vector<std::string>& words) {
                                    values.clear();
                                    for (const std::string& word : words)
                                      for (const int value : parse_list(name, word, *allowed)) values.push_back(value);
                                  });
  option->expected(CLI::detail::expected_max_vector_size);
  option->default_str(fmt::format("{}", fmt::join(values, ",")));
  return Option(option, std::move(allowed));
}

void complete(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object per line on stdout");
  for (CLI::App* inner : verb.get_subcommands({})) complete(*inner, json);
}

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// The verb that the arguments choose, and below it the next; takes their words away.
const CLI::App& chosen_verb(const CLI::App& app, std::vector<std::string>& arguments) {
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument)
    for (const CLI::App* verb : app.get_subcommands({}))
      if (verb->get_name() == *argument) {
        arguments.erase(argument);
        return chosen_verb(*verb, arguments);
      }
  return app;
}

// "bench plan".
std::string full_name(const CLI::App& verb) {
  const CLI::App* above = verb.get_parent();
  return above == nullptr || above->get_parent() == nullptr ? verb.get_name()
                                                            : full_name(*above) + " " + verb.get_name();
}

std::string no_verb_message(const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> verbs;
  for (const CLI::App* candidate : app.get_subcommands({})) verbs.push_back(candidate->get_name());
  const auto word = std::find_if(arguments.begin(), arguments.end(), [](const auto& a) { return !a.starts_with('-'); });
  const std::string all = fmt::format("{}", fmt::join(verbs, ", "));
  if (word == arguments.end()) return fmt::format("a verb is missing; allowed are {}", all);
  const std::string near = nearest(*word, verbs);
  return fmt::format("'{}' is no verb; {}", *word,
                     near.empty() ? "allowed are " + all : "did you mean '" + near + "'?");
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error, std::vector<std::string> arguments) {
  const CLI::App& verb = chosen_verb(app, arguments);
  if (!verb.get_subcommands({}).empty()) return no_verb_message(verb, arguments);
  const std::string title = full_name(verb);
  // An option that nobody knows: the first that starts like one and is not among the verb's.
  const std::vector<std::string> names = option_names(verb);
  const auto known = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& argument : arguments) {
      const std::string word = argument.substr(0, argument.find('='));
      if (word.size() < 2 || word[0] != '-' || known(word)) continue;
      if (word[1] != '-' && known(word.substr(0, 2))) continue;
      const std::string near = nearest(word, names);
      return fmt::format("{}: unknown option {}; {}", title, word,
                         near.empty() ? fmt::format("see weft {} --help", title) : "did you mean " + near + "?");
    }
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("{}: {}; see weft {} --help", title, message, title);
}

}  // namespace

Option& Option::required() { return option_->required(), *this; }
Option& Option::type_name(const std::string& name) { return option_->type_name(name), *this; }
Option& Option::one_of(const std::vector<std::string>& values) { return option_->check(CLI::IsMember(values)), *this; }
Option& Option::allows(const std::string& words, std::function<bool(double)> holds) {
  ensure(allowed_ != nullptr, "only numbers have a range");
  *allowed_ = {words, std::move(holds)};
  return *this;
}
Option& Option::range(int64_t lowest, int64_t highest) {
  return allows(fmt::format("{} to {}", lowest, highest), [lowest, highest](double number) {
    return number >= static_cast<double>(lowest) && number <= static_cast<double>(highest);
  });
}
Option& Option::filled() {
  option_->check([name = all_names(*option_)](const std::string& word) {
    check(!word.empty(), ErrorCode::invalid_argument, "{} = \"\"; allowed is a text that is not empty, or leave it out",
          name);
    return std::string();
  });
  return *this;
}
Option& Option::shown_default(const std::string& text) { return option_->default_str(text), *this; }
Option& Option::excludes(const Option& other) { return option_->excludes(other.option_), *this; }
bool Option::given() const { return option_->count() > 0; }

Verb Verb::verb(const std::string& name, const std::string& description) {
  return Verb(app_->add_subcommand(name, description));
}
Option Verb::option(const std::string& names, int& value, const std::string& help) {
  return add_number(*app_, names, value, help, "INT");
}
Option Verb::option(const std::string& names, int64_t& value, const std::string& help) {
  return add_number(*app_, names, value, help, "INT");
}
Option Verb::option(const std::string& names, uint64_t& value, const std::string& help) {
  return add_number(*app_, names, value, help, "UINT");
}
Option Verb::option(const std::string& names, float& value, const std::string& help) {
  return add_number(*app_, names, value, help, "FLOAT");
}
Option Verb::option(const std::string& names, std::string& value, const std::string& help) {
  return add_text(*app_, names, value, help);
}
Option Verb::option(const std::string& names, std::vector<int>& values, const std::string& help) {
  return add_list(*app_, names, values, help);
}
Option Verb::option(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  return Option(app_->add_option(names, values, help));
}
namespace {
constexpr uint64_t kMostUnits = std::numeric_limits<int64_t>::max();  // of bytes and of seconds
// A default as its option takes it, in the largest unit that divides it.
std::string in_units(int64_t value, std::initializer_list<std::pair<int64_t, const char*>> units) {
  for (const auto& [factor, name] : units)
    if (value != 0 && value % factor == 0) return fmt::format("{}{}", value / factor, name);
  return fmt::format("{}", value);
}
}  // namespace
Option Verb::bytes(const std::string& names, int64_t& value, const std::string& help) {
  static const std::map<std::string, uint64_t> kUnits = [] {
    std::map<std::string, uint64_t> units = {{"b", 1}};
    uint64_t factor = 1;
    for (const char* prefix : {"k", "m", "g", "t", "p"}) {
      factor <<= 10;
      for (const char* suffix : {"", "b", "ib"}) units[prefix + std::string(suffix)] = factor;
    }
    return units;
  }();
  CLI::Option* option =
      add_words(*app_, names, help, "SIZE", [&value](const std::string& name, const std::vector<std::string>& words) {
        value = static_cast<int64_t>(parse_with_unit(name, words.front(), kUnits, kMostUnits));
      });
  option->default_str(in_units(value, {{int64_t{1} << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}}));
  return Option(option);
}
Option Verb::seconds(const std::string& names, int64_t& value, const std::string& help) {
  static const std::map<std::string, uint64_t> kUnits = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  CLI::Option* option =
      add_words(*app_, names, help, "TIME", [&value](const std::string& name, const std::vector<std::string>& words) {
        value = static_cast<int64_t>(parse_with_unit(name, words.front(), kUnits, kMostUnits));
      });
  option->default_str(in_units(value, {{24 * 3600, "d"}, {3600, "h"}, {1, "s"}}));
  return Option(option);
}
Option Verb::flag(const std::string& names, bool& value, const std::string& help) {
  return Option(app_->add_flag(names, value, help));
}
void Verb::needs_verb() { app_->require_subcommand(1); }
void Verb::needs_options() { app_->require_option(1, 0); }
void Verb::example(const std::string& command) { app_->footer(help_footer(command)); }
void Verb::runs(std::function<void()> work) {
  app_->callback([work = std::move(work)] {
    check_environment();
    work();
  });
}
void Verb::runs_in_any_environment(std::function<void()> work) { app_->callback(std::move(work)); }

Program::Program(const std::string& description, const std::string& version, const std::string& footer)
    : Verb(nullptr), own_(std::make_unique<CLI::App>(description, "weft")) {
  app_ = own_.get();
  app_->set_version_flag("--version", version);
  app_->footer(footer);
  needs_verb();
}

Program::~Program() = default;

int Program::run(const std::vector<std::string>& arguments, bool& json) {
  for (CLI::App* verb : own_->get_subcommands({})) complete(*verb, json);
  try {
    own_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the end
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int code = own_->exit(help, text, text);
    write_out(text.str());
    return code;
  } catch (const CLI::ParseError& error) {
    throw UsageError(usage_message(*own_, error, arguments));
  }
  return 0;
}

}  // namespace weft::cli
