// The WEFT_* variables before a verb begins: one that holds what is not allowed is an error there, whether or not the
// verb would have read it.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

// Throws what is wrong with the first such variable: Error(invalid_argument), or Error(unsupported) for an instruction
// set that this machine or this build has not.
void check_environment();

// Of every variable with such a value, what is wrong with it. The process goes on as if they were not set. Before any
// other thread runs.
std::vector<std::string> drop_bad_variables();

}  // namespace weft::cli
