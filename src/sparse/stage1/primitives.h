// The schedule primitives of stage I. Each gives a changed program, or throws Error(invalid_argument) that says why
// not.
//
//   Stage1 fused = sparse_fuse(sddmm, "sddmm", {"I", "J"});
//   Stage1 hybrid = decompose_format(spmm, "csrmm", "A", {bsr_rule(...), ell_rule(...)});
#pragma once

#include <string>
#include <vector>

#include "sparse/formats/rule.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// The iteration's axes in this order; an axis stays behind its parent.
Stage1 sparse_reorder(Stage1 program, const std::string& iteration, const std::vector<std::string>& axes);

// Neighbouring axes, a chain from a root on, become one loop over all positions of the last. Where that mixes spatial
// and reduction axes, init becomes an iteration of its own before.
Stage1 sparse_fuse(Stage1 program, const std::string& iteration, const std::vector<std::string>& axes);

// What the iteration computes with `buffer` it computes with the buffers of other formats instead, one iteration for
// each rule, and init once before. Iterations that copy the values are marked `preprocess`. One rule alone is
// conversion. `copies`: what copies_of has found of an earlier decomposition by the same rules, whose axes are declared
// then; the iteration reads those.
Stage1 decompose_format(const Stage1& program, const std::string& iteration, const std::string& buffer,
                        const std::vector<FormatRewriteRule>& rules, const std::vector<std::string>& copies = {});
// The copies of `buffer` by these rules, one a rule, which hold what `iteration` reads of it; none where the iteration
// writes the buffer, where another one does between the copies and this one, or where a rule has no copy.
std::vector<std::string> copies_of(const Stage1& program, const std::string& iteration, const std::string& buffer,
                                   const std::vector<FormatRewriteRule>& rules);

// init as an iteration over the spatial axes.
Iteration init_of(const Iteration& it);

// Iterations that are marked `preprocess`, and the others.
struct SplitProgram {
  Stage1 preprocess, compute;
};
SplitProgram split_preprocess(const Stage1& program);

}  // namespace weft::sparse
