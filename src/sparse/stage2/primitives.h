// The schedule primitives of stage II. Each changes the loops in place and keeps what is computed; where it would not,
// it throws Error(invalid_argument) that says why. A loop is named by the block below it: "csrmm.k".
//
//   split(stage, "csrmm.k", 16, "ko", "ki");
//   reorder(stage, {"csrmm.ko", "csrmm.j", "csrmm.ki"});
//   vectorize(stage, "csrmm.ki");
//
// docs/sparse.md shows each before and after, with an example that is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// loop -> outer * factor + inner; a condition guards the end where the factor may not divide the extent.
void split(Stage2& stage, const std::string& loop, int64_t factor, const std::string& outer, const std::string& inner);
// Two loops, one directly within the other, become one.
void fuse(Stage2& stage, const std::string& outer, const std::string& inner, const std::string& fused);
// Puts loops of one nest in this order, outermost first.
void reorder(Stage2& stage, const std::vector<std::string>& loops);
// The team's workers share its iterations, by the work that an indptr tells where there is one.
void parallel(Stage2& stage, const std::string& loop);
void vectorize(Stage2& stage, const std::string& loop);
void unroll(Stage2& stage, const std::string& loop);
void bind(Stage2& stage, const std::string& loop, const std::string& thread);
// "prefetch": what the loop loads at loaded places is fetched so many of its iterations ahead.
void annotate(Stage2& stage, const std::string& loop, const std::string& annotation, std::optional<int64_t> number);
// What the block adds to within `loop` is kept in memory of its own, written back at the end of each iteration.
void cache_write(Stage2& stage, const std::string& loop, loop::Scope scope);
// What the block reads of `buffer` within an iteration of `loop` is copied first.
void cache_read(Stage2& stage, const std::string& loop, const std::string& buffer, loop::Scope scope);
// Where memory lies that a primitive made. A temporary buffer of the program, which is written and read within one
// iteration of some loops, comes to lie there, too, as large as those loops leave it.
void set_scope(Stage2& stage, const std::string& buffer, loop::Scope scope);
// Rows of memory that a primitive made, along its last dimension, begin `offset` beyond a multiple of `factor`
// elements: shared memory whose columns lie in different banks.
void storage_align(Stage2& stage, const std::string& buffer, int64_t factor, int64_t offset);
// Puts the expression that the block computes where its temporary buffer is read.
void compute_inline(Stage2& stage, const std::string& block);
// The block's sums may be added up by several iterations of shared loops at once, in any order: results may differ in
// the last bits from run to run.
void atomic(Stage2& stage, const std::string& block);
// The loop and what stands within it become a block of their own, which loops outside are not exchanged with.
void blockize(Stage2& stage, const std::string& loop, const std::string& block);
// Three loops are computed by one routine of the generator: "product", c[m, n] = c[m, n] + a[m, k] * b[k, n]. What
// conditions between them leave out is multiplied as 0, from memory that operands get for that, and not stored.
void tensorize(Stage2& stage, const std::string& loop, const std::string& intrinsic);
// Lets the nest of `block` share the outer loops of another nest up to `loop`: there it runs first, in every iteration.
void compute_at(Stage2& stage, const std::string& block, const std::string& loop);
// Lets the nest of `block`, which comes after that of `loop`, share its outer loops: there it runs last.
void reverse_compute_at(Stage2& stage, const std::string& block, const std::string& loop);
// A reduction loop becomes spatial: every iteration adds to a partial sum of its own, and a second block sums them up
// in order. A factor that is the same in all of them multiplies the sum, where something is added.
void rfactor(Stage2& stage, const std::string& loop, loop::Scope scope);
// Rows that are searched for within this loop, which sparse_fuse has made of several axes, are read from an array that
// is made with the structure.
void materialise_rows(Stage2& stage, const std::string& loop);
// Runs init of the block before this loop from now on, as a block of its own.
void decompose_reduction(Stage2& stage, const std::string& loop);

}  // namespace weft::sparse
