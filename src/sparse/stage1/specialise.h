// Parameters that become numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sparse/stage1/program.h"

namespace weft::sparse {

// Throws Error(invalid_argument) for a name that is no parameter, or a negative number.
Stage1 specialise(Stage1 program, const std::map<std::string, int64_t>& values);

}  // namespace weft::sparse
