// What the CUDA text of any sparse program says to the language, where tests/simt/sparse/cuda.h has less: threads and
// CTAs in three dimensions, sums that meet. Included by texts alone.
#pragma once

#define threadIdx weft_row_threadIdx
#define blockDim weft_row_blockDim
#define blockIdx weft_row_blockIdx
#define gridDim weft_row_gridDim
#include "tests/simt/sparse/cuda.h"
#undef threadIdx
#undef blockDim
#undef blockIdx
#undef gridDim

#include <cstddef>
#include <utility>

#include "tests/simt/sparse/card_shape.h"

// Index and extent along one of three dimensions.
template <int dimension, bool of_cta>
struct WeftIndex {
  __attribute__((no_sanitize("thread"))) operator unsigned() const {
    const unsigned* shape = of_cta ? weft::simt::card_shape.ctas : weft::simt::card_shape.threads;
    auto left = static_cast<unsigned>(of_cta ? weft::simt::cta_index() : weft::simt::thread_index());
    for (int d = 0; d < dimension; ++d) left /= shape[d];
    return left % shape[dimension];
  }
};
template <int dimension, bool of_cta>
struct WeftExtent {
  __attribute__((no_sanitize("thread"))) operator unsigned() const {
    return of_cta ? weft::simt::card_shape.ctas[dimension] : weft::simt::card_shape.threads[dimension];
  }
};
static const struct {
  WeftIndex<0, false> x;
  WeftIndex<1, false> y;
  WeftIndex<2, false> z;
} threadIdx{};
static const struct {
  WeftIndex<0, true> x;
  WeftIndex<1, true> y;
  WeftIndex<2, true> z;
} blockIdx{};
static const struct {
  WeftExtent<0, false> x;
  WeftExtent<1, false> y;
  WeftExtent<2, false> z;
} blockDim{};
static const struct {
  WeftExtent<0, true> x;
  WeftExtent<1, true> y;
  WeftExtent<2, true> z;
} gridDim{};

void atomicAdd(float* p, float x) { weft::simt::atomic_add(p, x); }
void atomicAdd(double* p, double x) { weft::simt::atomic_add(p, x); }

// Of the list that callers give: pointers, integers, and doubles by their bits.
template <class T>
__attribute__((no_sanitize("thread"))) T weft_argument(long long bits) {
  if constexpr (__is_same(T, double))
    return __builtin_bit_cast(double, bits);
  else
    return (T)bits;
}

// Not watched: the list of arguments is none of the launch's memory.
template <auto kernel>
struct WeftCall;
template <class... Arguments, void (*kernel)(Arguments...)>
struct WeftCall<kernel> {
  __attribute__((no_sanitize("thread"))) static void run(const long long* arguments) {
    pass(arguments, std::index_sequence_for<Arguments...>());
  }
  template <std::size_t... i>
  __attribute__((no_sanitize("thread"))) static void pass(const long long* arguments, std::index_sequence<i...>) {
    kernel(weft_argument<Arguments>(arguments[i])...);
  }
};
