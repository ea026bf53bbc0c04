// Reals as the tests compute them: a value, and how far what a program computes of it may lie from it.
//
//   Number a = number(0.5), b = number(3);                // as they are in memory
//   Number c = result_of(quotient, {a, b});               // 1/6; c.error: a few units of fp32
//   stored(c, "fp16", false);                             // the same in fp16: half a unit more
//
// Whole numbers and those of a few binary digits stay exact: their error is 0, and so is what is allowed. For all else
// the bounds hold in every order of a sum, of its products with a factor too: each operation rounds as if it had the
// sum of all magnitudes before it (`size`), 16 times in fp32, which functions within 8 ulps do as well.
#pragma once

#include <string>

#include "tests/sparse/random/term.h"

namespace weft::sparse::random {

// Of a double, or of an fp32 that is nearest to it.
Number number(double value);
// Of an operation on reals or integers. Throws Unusable where nothing can be said: a comparison that rounding decides,
// an argument that a function has no value at.
Number result_of(const Operation& op, const Number* operands);
// As an element of a buffer. `accumulates`: what the buffer held is part of it.
Number stored(const Number& x, const std::string& dtype, bool accumulates);

}  // namespace weft::sparse::random
