// The text of the kernels, as the host's compiler takes it.
#include "tests/simt/kernels/attend.h"
#include "tests/simt/kernels/boxes.h"
#include "tests/simt/kernels/convert.h"
#include "tests/simt/kernels/gemm.h"
#include "tests/simt/kernels/instructions.h"
#include "tests/simt/kernels/persistent.h"
#include "tests/simt/kernels/rows.h"
#include "tests/simt/kernels/sum.h"
