// Kernels of sm_90a's own instructions, as one text.
#pragma once

#include "tests/simt/kernels/boxes.h"
#include "tests/simt/kernels/cluster.h"
#include "tests/simt/kernels/warpgroup_attend.h"
#include "tests/simt/kernels/warpgroup_gemm.h"
#include "tests/simt/kernels/wgmma_forms.h"
