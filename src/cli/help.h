// What the help and the usage errors of all verbs share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// The end of a verb's help: an example and the environment variables.
std::string help_footer(std::string_view example);
// Of the candidates the one that differs from the word in the fewest letters; empty when all are too far.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace weft::cli
