// Instructions and routines of targets: what each of them is in the IR, and its text on every target. Loops, stores and
// expressions that are none of these are C-like code, and the same for all.
//
//   text_of(Intrinsic::dot, Target::cpp, {"sum", "a", "b"});   // "sum = weft_dot_bf16(sum, a, b);"
//   has(Intrinsic::dot, Target::cuda);                         // false: there it is a nest of loops as any other
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::loop {

enum class Target : uint8_t { cpp, cuda };

enum class Intrinsic : uint8_t {
  // A nest that is annotated `dot` (loop/dot.h), of bf16. Operands: the vector of sums, a's two elements, b's.
  dot,
  // A nest that is annotated `product` (loop/product.h). Operands: M, N, K; c and its step along m; a and its steps
  // along m and k; b and its step along k; which elements of c a thread computes, the first and the step to the next.
  product,
  // A vector loop's access of elements side by side that memory has in 16 bits. Operands: their type, the first one's
  // place, and of a load how many they are, of a store the vector.
  load_narrow,
  store_narrow,
  // A vector or unrolled loop's access of elements side by side, made before or behind it in pieces of several.
  // Operands: how many a piece has, how many there are, where they come to, and where they come from.
  load_wide,
  store_wide,
  // What a loop that is annotated `prefetch` loads at a loaded place, some iterations early. Operand: the place. Cards
  // read it instead (loop/ahead.h).
  prefetch,
  // Above a loop to be unrolled, so many times; above one over lanes that stays a loop.
  unroll,
  lanes,
  // Numbers that no literal is.
  infinity_fp32,
  infinity_fp64,
  nan_fp32,
  nan_fp64,
  // Stmt::Kind::barrier.
  barrier,
  // Stmt::Kind::thread_sum, over a warp or a CTA. Operands: the sum, how two of them are combined.
  warp_sum,
  cta_sum,
};

bool has(Intrinsic intrinsic, Target target);
// Of an intrinsic that the target has.
std::string text_of(Intrinsic intrinsic, Target target, const std::vector<std::string>& operands);

}  // namespace weft::loop
