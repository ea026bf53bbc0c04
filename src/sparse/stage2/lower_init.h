// Where init of a block runs.
#pragma once

#include <string>

#include "sparse/stage2/nest.h"

namespace weft::sparse {

// Moves init out of the block to before `nest.path[place]`, over the spatial loops from there on; into a block of that
// name, which may be "", so that what init sets by `let` stays apart from what follows.
void place_init(const Stage2& stage, Nest nest, size_t place, const std::string& name);
// Every init that is left runs before the outermost reduction around its block, or first in it where there is none. So
// it runs also where a reduction is empty.
void lower_init(Stage2& stage);

}  // namespace weft::sparse
