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
  // The type of a vector of reals, which a vector loop computes with. Operands: their type, how many.
  vector,
  // A nest that is annotated `dot` (loop/dot.h), of bf16. Operands: the vector of sums, a's two elements, b's.
  dot,
  // A nest that is annotated `product` (loop/product.h). Operands: M, N, K; c and its step along m; a and its steps
  // along m and k; b and its step along k; which elements of c a thread computes, the first and the step to the next.
  product,
  // A nest that is annotated `mma`, of threads that come to it together. Operands: whether factors are bf16; tiles of a
  // warp and warps along rows and columns of tiles, and K; whether depths of each factor lie side by side; the thread's
  // part of c; the factors, each with its step along the other dimension.
  mma,
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
  // Above a loop copies of whose body would take registers, or time to compile, for nothing.
  rolled,
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
  // Stmt::Kind::copy_async: where 16 bytes come to, where they come from, and how many of them are copied, 16 or none:
  // the others become 0. What a thread has begun to copy since its last commit is a group; it waits until all but the
  // last so many groups are there.
  copy_async,
  commit_copies,
  wait_copies,
  // Stmt::Kind::thread_sum, over a warp, which may be whole, or a CTA. Operands: the sum, how two of them are combined.
  warp_sum,
  whole_warp_sum,
  cta_sum,
};

bool has(Intrinsic intrinsic, Target target);
// Of an intrinsic that the target has.
std::string text_of(Intrinsic intrinsic, Target target, const std::vector<std::string>& operands);

}  // namespace weft::loop
