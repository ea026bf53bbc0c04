// The host as the machine of tests/simt runs it, under the names of src/tile/cuda/ptx/target.h.
#pragma once

#include "tests/simt/machine/device.h"

#define WEFT_INLINE inline __attribute__((always_inline))
#define WEFT_NO_INLINE __attribute__((noinline))
#define WEFT_UNROLL
#define WEFT_UNROLL_4
#define WEFT_NO_UNROLL
#define WEFT_KERNEL(threads, ctas) extern "C"
#define WEFT_PARAM const
#ifndef WEFT_SM  // a text that begins with 75 has the forms of sm_75
#define WEFT_SM 90
#endif

namespace weft {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;

}  // namespace weft
