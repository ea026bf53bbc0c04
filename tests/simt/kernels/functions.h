// The math of variants on a card, function by function.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/thread.h"
#include "tile/cuda/variant.h"

WEFT_KERNEL(128, 1) void weft_functions(WEFT_PARAM weft::FunctionsArgs args) {
  using namespace weft;
  for (int i = ptx::thread_index(); i < args.n; i += ptx::num_threads()) {
    const float x = args.x[i];
    const float y[kFunctions] = {weft::exp(x),       weft::exp2(x),    weft::log(x), weft::tanh(x),
                                 weft::fast_tanh(x), weft::sigmoid(x), weft::abs(x)};
    for (int f = 0; f < kFunctions; ++f) args.y[f * args.n + i] = y[f];
  }
}
