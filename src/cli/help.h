// What the help and the usage errors of all verbs share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// The end of a verb's help: an example and the environment variables.
std::string help_footer(std::string_view example);
// Of the candidates the one that differs from the word in the fewest letters; empty when all are too far.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);
// One line that says what is wrong with the arguments and names the right option or verb where one is close.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments);

}  // namespace weft::cli
