// What the files of decompose_format share: its check, and what is asked of the iteration and the buffer that it
// rewrites.
#pragma once

#include <string>
#include <vector>

#include "sparse/formats/rule.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// Throws Error(invalid_argument) that names both.
[[noreturn]] void refuse_format(const std::string& iteration, const std::string& buffer, const std::string& why);
// Throws what refuse_format does for an iteration whose results would be others in these formats.
void check_decomposable(const Stage1& program, const std::string& iteration, const std::string& buffer,
                        const std::vector<FormatRewriteRule>& rules);

// Where the axes of `buffer` stand one after another within those of `other`; npos where they don't.
size_t place_within(const SparseBuffer& other, const SparseBuffer& buffer);
// Whether the store computes an element from other buffers alone, as Y[i, j] = f(X[i, j]) does: nothing is added up.
bool is_assigned(const Iteration& it, const Stmt& store);
// Whether another iteration computes the buffer in each run: copies of it are made then, and not once for new values.
bool is_computed(const Stage1& program, const Iteration& it, const std::string& buffer);
// Whether results lie on the axes of the decomposed buffer: then each format has results of its own, which are
// gathered.
bool writes_on_axes_of(const Stage1& program, const Iteration& it, const SparseBuffer& buffer);

}  // namespace weft::sparse
