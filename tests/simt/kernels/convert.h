// Every element of 8 bits and of 16, as a float, and floats as halves.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/thread.h"

namespace weft {

// Words thread, thread + threads, ... of `words` of them.
template <class T>
WEFT_INLINE void unpack_all(const u32* from, int words, float* to) {
  for (int i = ptx::thread_index(); i < words; i += ptx::num_threads()) {
    float x[tile::kPerWord<T>];
    tile::unpack<T>(from[i], x);
    WEFT_UNROLL
    for (int e = 0; e < tile::kPerWord<T>; ++e) to[i * tile::kPerWord<T> + e] = x[e];
  }
}

}  // namespace weft

WEFT_KERNEL(128, 1) void weft_convert(WEFT_PARAM weft::ConvertArgs args) {
  using namespace weft;
  switch (args.type) {
    case 0: unpack_all<fp16>(args.words, args.n, args.floats); break;
    case 1: unpack_all<bf16>(args.words, args.n, args.floats); break;
    case 2: unpack_all<fp8_e4m3>(args.words, args.n, args.floats); break;
    case 3: unpack_all<fp8_e5m2>(args.words, args.n, args.floats); break;
    case 4: unpack_all<signed char>(args.words, args.n, args.floats); break;
    case 5: unpack_all<int4x2>(args.words, args.n, args.floats); break;
  }
  for (int i = ptx::thread_index(); i < args.num_values; i += ptx::num_threads()) {
    args.halves[i] = tile::pack<fp16>(args.values[i], -args.values[i]);
    args.halves[args.num_values + i] = tile::pack<bf16>(args.values[i], -args.values[i]);
    tile::store(reinterpret_cast<fp16*>(args.stored) + i, args.values[i]);
  }
}
