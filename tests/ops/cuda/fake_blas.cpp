// cuBLASLt that is none: products of fp32 on the host, whose memory the card's is; of memory without bytes none.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "tests/device/cuda/fake_driver.h"

namespace {
bool has_bytes() {
  void* library = dlopen(WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<decltype(&weft_fake_driver)>(dlsym(library, "weft_fake_driver"))()->moves_bytes;
}

struct Layout {
  uint64_t rows, cols;
  int64_t ld;
};
struct Product {
  int compute, transposed;
};
}  // namespace

extern "C" {
int cublasLtCreate(void** handle) {
  static int the_handle;
  return *handle = &the_handle, 0;
}
int cublasLtMatmulDescCreate(void** made, int compute, int) { return *made = new Product{compute, 0}, 0; }
int cublasLtMatmulDescDestroy(void* p) { return delete static_cast<Product*>(p), 0; }
int cublasLtMatmulDescSetAttribute(void* p, int which, const void* value, size_t) {
  if (which == 3) static_cast<Product*>(p)->transposed = *static_cast<const int*>(value);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** made, int, uint64_t rows, uint64_t cols, int64_t ld) {
  return *made = new Layout{rows, cols, ld}, 0;
}
int cublasLtMatrixLayoutDestroy(void* p) { return delete static_cast<Layout*>(p), 0; }
// Columns one behind the other: d = a^T b + beta c.
int cublasLtMatmul(void*, void* product, const void*, const void* a, void* of_a, const void* b, void* of_b,
                   const void* beta, const void* c, void* of_c, void* d, void* of_d, const void*, void*, size_t,
                   void*) {
  const auto &la = *static_cast<Layout*>(of_a), &lb = *static_cast<Layout*>(of_b), &ld = *static_cast<Layout*>(of_d),
             &lc = *static_cast<Layout*>(of_c);
  if (static_cast<Product*>(product)->transposed != 1 || la.rows != lb.rows || la.cols != ld.rows || lb.cols != ld.cols)
    return 7;
  if (!has_bytes()) return 0;
  const float factor = *static_cast<const float*>(beta);
  for (uint64_t j = 0; j < ld.cols; ++j)
    for (uint64_t i = 0; i < ld.rows; ++i) {
      double sum = 0;
      for (uint64_t k = 0; k < la.rows; ++k)
        sum += double{static_cast<const float*>(a)[i * static_cast<uint64_t>(la.ld) + k]} *
               double{static_cast<const float*>(b)[j * static_cast<uint64_t>(lb.ld) + k]};
      const float before = factor != 0 ? static_cast<const float*>(c)[j * static_cast<uint64_t>(lc.ld) + i] : 0.f;
      static_cast<float*>(d)[j * static_cast<uint64_t>(ld.ld) + i] = static_cast<float>(sum) + factor * before;
    }
  return 0;
}
}
