// Parameters that become numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sparse/stage1/program.h"

namespace weft::sparse {

// Throws Error(invalid_argument) for a name that is no parameter of that type, or an integer below 0.
Stage1 specialise(Stage1 program, const std::map<std::string, int64_t>& values,
                  const std::map<std::string, double>& reals = {});

}  // namespace weft::sparse
