// What the CUDA text of sparse programs says to the language, for the host's compiler.
#pragma once

#include "tests/simt/machine/device.h"

#define __global__
#define __device__
#define __shared__ static_assert(false, "no operator keeps shared memory yet");

struct WeftThreadIndex {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::thread_index()); }
};
struct WeftThreads {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::num_threads()); }
};
struct WeftCtaIndex {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::cta_index()); }
};
struct WeftCtas {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::num_ctas()); }
};
static const struct { WeftThreadIndex x; } threadIdx{};
static const struct { WeftThreads x; } blockDim{};
static const struct { WeftCtaIndex x; } blockIdx{};
static const struct { WeftCtas x; } gridDim{};

inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
extern "C" float fabsf(float), sqrtf(float), expf(float);
extern "C" double fabs(double), sqrt(double), exp(double);
void atomicAdd(float*, float);  // no operator's own schedule adds so
void atomicAdd(double*, double);
