#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"

namespace weft::cli {
namespace {

// Letters changed, added, left out, or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<size_t> table((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> size_t& { return table[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({replaced, at(i - 1, j) + 1, at(i, j - 1) + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::App& chosen_verb(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments)
    for (const CLI::App* verb : app.get_subcommands({}))
      if (verb->get_name() == argument) return *verb;
  return app;
}

}  // namespace

std::string help_footer(std::string_view example) {
  std::string footer = fmt::format("Example:\n  {}\n\nEnvironment:\n", example);
  for (const env::Variable& variable : env::variables())
    footer += fmt::format("  {} ({})\n      {}\n", variable.name, variable.values, variable.effect);
  return footer;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(word.size() / 2, 1) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& arguments) {
  const CLI::App& verb = chosen_verb(app, arguments);
  const bool has_verb = &verb != &app;
  if (!has_verb) {
    std::vector<std::string> verbs;
    for (const CLI::App* candidate : app.get_subcommands({})) verbs.push_back(candidate->get_name());
    const auto word =
        std::find_if(arguments.begin(), arguments.end(), [](const auto& a) { return !a.starts_with('-'); });
    const std::string all = fmt::format("{}", fmt::join(verbs, ", "));
    if (word == arguments.end()) return fmt::format("a verb is missing; allowed are {}", all);
    const std::string near = nearest(*word, verbs);
    return fmt::format("'{}' is no verb; {}", *word,
                       near.empty() ? "allowed are " + all : "did you mean '" + near + "'?");
  }
  // An option that nobody knows: the first that starts like one and is not among the verb's.
  const std::vector<std::string> names = option_names(verb);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    for (const std::string& argument : arguments) {
      const std::string word = argument.substr(0, argument.find('='));
      if (word.size() < 2 || word[0] != '-' || std::find(names.begin(), names.end(), word) != names.end()) continue;
      if (word[1] != '-' && std::find(names.begin(), names.end(), word.substr(0, 2)) != names.end()) continue;
      const std::string near = nearest(word, names);
      return fmt::format(
          "{}: unknown option {}; {}", verb.get_name(), word,
          near.empty() ? fmt::format("see weft {} --help", verb.get_name()) : "did you mean " + near + "?");
    }
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return fmt::format("{}: {}; see weft {} --help", verb.get_name(), message, verb.get_name());
}

}  // namespace weft::cli
