// What one thread stores alone, in the name of all that run a statement alike.
#pragma once

#include <string>

#include "loop/threads/surroundings.h"

namespace weft::loop {

// Throws Error(unsupported) where several iterations of a bound loop, or several CTAs, would store an element of a
// buffer that is to be stored once.
void check_stored_once(const Kernel& kernel, const Surroundings& around, const Stmt& store);
// The statement for the first along these axes: `if threadIdx.x == 0: ...`
Stmt for_first(const Names& axes, Body body);

}  // namespace weft::loop
