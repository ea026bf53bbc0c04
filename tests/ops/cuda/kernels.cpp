// The operators' kernels as the host machine runs them, but for products, which CMakeLists.txt makes a file for each
// type of.
#include "ops/cuda/kernels/append.h"
#include "ops/cuda/kernels/elementwise.h"
#include "tests/ops/cuda/instances.h"

using namespace weft;
#define WEFT_MAKE(symbol, args, instance) instance
WEFT_CACHES(WEFT_MAKE)
