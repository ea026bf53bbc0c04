// The operators' kernels as the host machine runs them.
#include "ops/cuda/kernels/append.h"
#include "ops/cuda/kernels/elementwise.h"
#include "ops/cuda/kernels/linear.h"
#include "tests/ops/cuda/instances.h"

using namespace weft;
#define WEFT_MAKE(symbol, args, instance) instance
WEFT_CACHES(WEFT_MAKE)
WEFT_LINEARS(WEFT_MAKE)
