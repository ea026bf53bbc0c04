// The text of the kernels, as the host's compiler takes it.
#include "tests/simt/kernels/gemm.h"
#include "tests/simt/kernels/sum.h"
