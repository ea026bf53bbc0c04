// Functions of reals in the CPU's text. It includes nothing and calls nothing, so they are text, too; without branches,
// so that loops over them become vectors.
//
//   text += cpp_math();           // weft_exp, weft_log, weft_tanh, weft_sigmoid, weft_pow, of float and of double
#pragma once

#include <string>

namespace weft::loop {

// How far results lie from the exact ones, in ulps (tests/sparse/functions_test.cpp measures it):
//   float: exp 2, log 2, tanh 4, sigmoid 4, pow 1; double: exp 2, log 2, tanh 4, sigmoid 4, pow 4 + 2 |y ln x|.
const std::string& cpp_math();

}  // namespace weft::loop
