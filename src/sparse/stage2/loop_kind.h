// What primitives that say how a loop runs ask of it.
//
//   Stmt& loop = serial_loop("parallel", found);
//   check_apart("parallel", stage, found);
#pragma once

#include <string>

#include "sparse/stage2/nest.h"

namespace weft::sparse {

using loop::LoopKind;

// Each throws Error(invalid_argument) that names the primitive: where the loop has a kind already; where two of its
// iterations may access one element, one of them writing it.
Stmt& serial_loop(const std::string& primitive, const LoopInNest& found);
void check_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found);

// Two of its iterations that may access one element, one of them writing it, in words; "" where there are none.
std::string problem_of_sharing(const Stage2& stage, const LoopInNest& found);
// Why threads or CTAs along the axis cannot share the loop, in words; "" where they can.
std::string problem_of_binding(const Stage2& stage, const LoopInNest& found, const std::string& thread);

// Whether what is added up within is added at once; other writes have elements of their own.
bool adds_atomically(const Body& body);

}  // namespace weft::sparse
