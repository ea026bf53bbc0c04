// What the CUDA text of sparse programs says to the language, for the host's compiler.
#pragma once

#include "tests/simt/machine/device.h"
#include "tests/simt/sparse/kernels.h"

#define __global__
#define __launch_bounds__(...)
#define __device__
#define __shared__  // memory of the CTA is what weft_shared_memory() gives: see kernels.cpp

// Threads lie in rows of sparse_threads_x; 0: in one.
struct WeftThreads {
  operator unsigned() const {
    const auto threads = static_cast<unsigned>(weft::simt::num_threads());
    return weft::simt::sparse_threads_x == 0 ? threads : weft::simt::sparse_threads_x;
  }
};
struct WeftThreadRows {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::num_threads()) / WeftThreads(); }
};
struct WeftThreadIndex {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::thread_index()) % WeftThreads(); }
};
struct WeftThreadRow {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::thread_index()) / WeftThreads(); }
};
struct WeftCtaIndex {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::cta_index()); }
};
struct WeftCtas {
  operator unsigned() const { return static_cast<unsigned>(weft::simt::num_ctas()); }
};
static const struct {
  WeftThreadIndex x;
  WeftThreadRow y;
  unsigned z = 0;
} threadIdx{};
static const struct {
  WeftThreads x;
  WeftThreadRows y;
  unsigned z = 1;
} blockDim{};
static const struct { WeftCtaIndex x; } blockIdx{};
static const struct { WeftCtas x; } gridDim{};

#define __syncthreads() weft::simt::cta_sync()
#define __trap() weft::simt::trap()
#define __builtin_assume(condition) ((condition) ? (void)0 : weft::simt::trap())
#define printf(...) ((void)0)  // a card says why it traps
// Whoever names the lanes of less than a warp is one of a whole warp all the same here.
#define __shfl_xor_sync(mask, x, step) weft_shuffle_xor(x, step)
inline float weft_shuffle_xor(float x, unsigned step) {
  return __builtin_bit_cast(float, weft::simt::shuffle_xor(__builtin_bit_cast(unsigned, x), static_cast<int>(step)));
}
inline double weft_shuffle_xor(double x, unsigned step) {
  const auto bits = __builtin_bit_cast(unsigned long long, x);
  const unsigned long long low = weft::simt::shuffle_xor(static_cast<unsigned>(bits), static_cast<int>(step));
  const unsigned long long high = weft::simt::shuffle_xor(static_cast<unsigned>(bits >> 32), static_cast<int>(step));
  return __builtin_bit_cast(double, high << 32 | low);
}

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

template <class T>
void __stcg(T* to, const T& x) {
  *to = x;
}
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
extern "C" float fabsf(float), sqrtf(float), expf(float), logf(float), tanhf(float), powf(float, float);
extern "C" double fabs(double), sqrt(double), exp(double), log(double), tanh(double), pow(double, double);
void atomicAdd(float*, float);  // no operator's own schedule adds so
void atomicAdd(double*, double);
inline void atomicMin(unsigned long long* p, unsigned long long x) { weft::simt::atomic_min(p, x); }
