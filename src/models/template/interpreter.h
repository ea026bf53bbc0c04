// Runs a parsed template over a context, within bounds on steps, depth and output.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

#include "models/template/ast.h"

namespace weft::jinja {

struct RenderOptions {
  std::optional<std::time_t> now = {};  // what strftime_now tells; default: the clock
  int64_t max_steps = 3'000'000;
};

// Throws Error(invalid_template) with the line; raise_exception's message included.
std::string render(const Block& block, const Value& context, const RenderOptions& options = {});

}  // namespace weft::jinja
