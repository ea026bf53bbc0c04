// What the compiler of a CUDA kernel is told: unmarked functions are device code already (jit/nvrtc/toolchain.cpp).
// tile/cuda/ptx is all that a kernel says to the hardware. tests/simt/twins has the same names for the host, and takes
// this folder's place when a kernel's text is compiled there.
#pragma once

#define WEFT_INLINE __forceinline__
#define WEFT_NO_INLINE __noinline__
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_UNROLL_4 _Pragma("unroll 4")
#define WEFT_NO_UNROLL _Pragma("unroll 1")
// WEFT_KERNEL(threads of a CTA, CTAs that a multiprocessor is to hold) void attend(WEFT_PARAM Args args) { ... }
#define WEFT_KERNEL(threads, ctas) extern "C" __global__ __launch_bounds__(threads, ctas)
#define WEFT_PARAM const __grid_constant__
// 75, 80, 86, 89 or 90. A text that begins with a smaller one takes the forms of that architecture on a newer card.
#ifndef WEFT_SM
#define WEFT_SM (__CUDA_ARCH__ / 10)
#endif

namespace weft {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned;
using i64 = long long;
using u64 = unsigned long long;

}  // namespace weft
