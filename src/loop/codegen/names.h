// Names of a program in the text of a target: the language takes any identifier, and some mean something else there.
//
//   const Function renamed = with_free_names(function);   // what is called "int" is called "int_"
#pragma once

#include "loop/ir.h"

namespace weft::loop {

// Gives another name to parameters, buffers and variables that are called as words of C++ and CUDA are, as macros, as
// what generated text declares around them, or as what the generator makes of the names of loops. Failures keep the
// names that messages say. Buffers and parameters stay in their order.
Function with_free_names(Function function);

}  // namespace weft::loop
