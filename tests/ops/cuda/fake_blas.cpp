// cuBLASLt that is none: products of fp32 on the host, whose memory the card's is; of memory without bytes none.
// Addresses that are not aligned as it was told are refused.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

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
  int compute, transposes_a, transposes_b;
};
struct Preference {
  uint64_t alignment[4];  // of a, b, c and d
};
// Of a [rows, cols] with columns one behind the other, or of its transposed.
float element(const void* data, const Layout& layout, int transposed, uint64_t row, uint64_t col) {
  if (transposed != 0) std::swap(row, col);
  return static_cast<const float*>(data)[col * static_cast<uint64_t>(layout.ld) + row];
}
}  // namespace

extern "C" {
int cublasLtCreate(void** handle) {
  static int the_handle;
  return *handle = &the_handle, 0;
}
int cublasLtMatmulDescCreate(void** made, int compute, int) { return *made = new Product{compute, 0, 0}, 0; }
int cublasLtMatmulDescDestroy(void* p) { return delete static_cast<Product*>(p), 0; }
int cublasLtMatmulDescSetAttribute(void* p, int which, const void* value, size_t) {
  if (which == 3) static_cast<Product*>(p)->transposes_a = *static_cast<const int*>(value);
  if (which == 4) static_cast<Product*>(p)->transposes_b = *static_cast<const int*>(value);
  return 0;
}
int cublasLtMatrixLayoutCreate(void** made, int, uint64_t rows, uint64_t cols, int64_t ld) {
  return *made = new Layout{rows, cols, ld}, 0;
}
int cublasLtMatrixLayoutDestroy(void* p) { return delete static_cast<Layout*>(p), 0; }
int cublasLtMatmulPreferenceCreate(void** made) { return *made = new Preference{{256, 256, 256, 256}}, 0; }
int cublasLtMatmulPreferenceDestroy(void* p) { return delete static_cast<Preference*>(p), 0; }
int cublasLtMatmulPreferenceSetAttribute(void* p, int which, const void* value, size_t bytes) {
  if (which >= 5 && which <= 8 && bytes == 4)
    static_cast<Preference*>(p)->alignment[which - 5] = *static_cast<const uint32_t*>(value);
  return 0;
}
// The algorithm is what it was told of addresses.
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void* preference, int, void* choice,
                                   int* found) {
  std::memcpy(choice, static_cast<Preference*>(preference)->alignment, 32);
  return *found = 1, 0;
}
// Columns one behind the other: d = op(a) op(b) + beta c. Addresses are as it was told, or as it expects them.
int cublasLtMatmul(void*, void* product, const void*, const void* a, void* of_a, const void* b, void* of_b,
                   const void* beta, const void* c, void* of_c, void* d, void* of_d, const void* algorithm,
                   void* workspace, size_t workspace_bytes, void*) {
  const auto &la = *static_cast<Layout*>(of_a), &lb = *static_cast<Layout*>(of_b), &ld = *static_cast<Layout*>(of_d),
             &lc = *static_cast<Layout*>(of_c);
  const auto& op = *static_cast<Product*>(product);
  const bool ta = op.transposes_a != 0, tb = op.transposes_b != 0;
  const uint64_t inner = ta ? la.rows : la.cols;
  if ((tb ? lb.cols : lb.rows) != inner || (ta ? la.cols : la.rows) != ld.rows || (tb ? lb.rows : lb.cols) != ld.cols)
    return 7;
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    const uint64_t told = algorithm != nullptr ? static_cast<const uint64_t*>(algorithm)[i] : 256;
    if (reinterpret_cast<uintptr_t>(operands[i]) % told != 0) return 7;
  }
  if (!has_bytes()) return 0;
  if (workspace_bytes > 0) *static_cast<size_t*>(workspace) = workspace_bytes;  // for a test to see
  const float factor = *static_cast<const float*>(beta);
  for (uint64_t j = 0; j < ld.cols; ++j)
    for (uint64_t i = 0; i < ld.rows; ++i) {
      double sum = 0;
      for (uint64_t k = 0; k < inner; ++k) sum += double{element(a, la, ta, i, k)} * double{element(b, lb, tb, k, j)};
      const float before = factor != 0 ? static_cast<const float*>(c)[j * static_cast<uint64_t>(lc.ld) + i] : 0.f;
      static_cast<float*>(d)[j * static_cast<uint64_t>(ld.ld) + i] = static_cast<float>(sum) + factor * before;
    }
  return 0;
}
}
