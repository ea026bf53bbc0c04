// What one thread does alone, in the name of all that would do it alike.
#pragma once

#include <string>

#include "loop/threads/surroundings.h"

namespace weft::loop {

// Throws Error(unsupported) where several iterations of a bound loop, or several CTAs, would store an element of a
// buffer that is to be stored once.
void check_stored_once(const Kernel& kernel, const Surroundings& around, const Stmt& store);
// Axes of threads that nothing in the loop, an outermost one over threads, is bound to. None where it stores to memory
// around it that every thread has for itself: all of them need that.
Names axes_of_first(const Kernel& kernel, const Stmt& loop);
// The statement for the first along these axes: `if threadIdx.x == 0: ...`
Stmt for_first(const Names& axes, Body body);

}  // namespace weft::loop
