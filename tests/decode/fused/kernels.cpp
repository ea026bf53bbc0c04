// The kernels of fused decoding, as the host's compiler takes them.
#include "decode/fused/cuda/kernels/deep_linear.h"
#include "tests/decode/fused/instances.h"

WEFT_DEEP_LINEARS(WEFT_DEEP_LINEAR)
