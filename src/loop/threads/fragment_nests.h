// Nests over fragments (loop/threads/fragments.h), as each thread of their warps runs them.
#pragma once

#include "loop/product.h"
#include "loop/threads/kernel.h"

namespace weft::loop {

// Whether it is loops around a store, one alone in the other, that access a fragment, and no product.
bool accesses_fragments(const Kernel& kernel, const Stmt& stmt);
// Of such a nest: each thread goes through the pairs that it holds. `number` makes its names its own. Throws
// Error(unsupported) where it does anything else with a fragment.
Body through_pairs(const Kernel& kernel, const Stmt& nest, int number);

// Throws Error(unsupported) that says what of it mma does not multiply.
void check_mma(const Kernel& kernel, const Stmt& loop, const ProductNest& nest);

}  // namespace weft::loop
