#pragma once

#include "cli/arguments.h"
#include "cli/cli.h"

namespace weft::cli {

// `weft jit compile`: kernels of attention for a card that need not be here.
void add_jit_compile(Verb& jit, Context& context);

}  // namespace weft::cli
