// Tokens to tree. What is not supported is refused here, with its line, wherever that can be seen without running.
#pragma once

#include <string_view>

#include "models/template/ast.h"

namespace weft::jinja {

// Throws Error(invalid_template).
Block parse(std::string_view source);

}  // namespace weft::jinja
