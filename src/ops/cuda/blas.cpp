#include "ops/cuda/blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "device/cuda/driver.h"
#include "device/cuda/folders.h"

namespace weft::ops {
namespace {

// Our own declarations of the part that is called (cublasLt.h of version 12 and 13).
using Handle = void*;
using Descriptor = void*;
constexpr int kSuccess = 0, kNotSupported = 15;
constexpr int kFp32 = 0, kBf16 = 14, kComputeFp32 = 68, kComputeTf32 = 77;  // cudaDataType_t, cublasComputeType_t
constexpr int kTransposeA = 3, kTransposeB = 4, kTransposed = 1;            // attributes of products, their value
// Attributes of a preference: how far operands and result are aligned.
constexpr int kWorkspaceBytes = 1, kAlignmentOfA = 5, kAlignmentOfB = 6, kAlignmentOfC = 7, kAlignmentOfD = 8;
constexpr uintptr_t kExpected = 256;  // what the library takes for granted where it is told nothing

struct Choice {  // cublasLtMatmulHeuristicResult_t
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

#define WEFT_BLAS_FUNCTIONS(X)                                                                                      \
  X(cublasLtCreate, Handle*)                                                                                        \
  X(cublasLtMatmulDescCreate, Descriptor*, int, int)                                                                \
  X(cublasLtMatmulDescDestroy, Descriptor)                                                                          \
  X(cublasLtMatmulDescSetAttribute, Descriptor, int, const void*, size_t)                                           \
  X(cublasLtMatrixLayoutCreate, Descriptor*, int, uint64_t, uint64_t, int64_t)                                      \
  X(cublasLtMatrixLayoutDestroy, Descriptor)                                                                        \
  X(cublasLtMatmulPreferenceCreate, Descriptor*)                                                                    \
  X(cublasLtMatmulPreferenceDestroy, Descriptor)                                                                    \
  X(cublasLtMatmulPreferenceSetAttribute, Descriptor, int, const void*, size_t)                                     \
  X(cublasLtMatmulAlgoGetHeuristic, Handle, Descriptor, Descriptor, Descriptor, Descriptor, Descriptor, Descriptor, \
    int, Choice*, int*)                                                                                             \
  X(cublasLtMatmul, Handle, Descriptor, const void*, const void*, Descriptor, const void*, Descriptor, const void*, \
    const void*, Descriptor, void*, Descriptor, const void*, void*, size_t, void*)

struct Functions {
#define WEFT_DECLARE(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  WEFT_BLAS_FUNCTIONS(WEFT_DECLARE)
#undef WEFT_DECLARE
};

void require(int status, const char* what) {
  check(status != kNotSupported, ErrorCode::unsupported, "cuBLASLt does not compute this product ({})", what);
  check(status == kSuccess, ErrorCode::device_failed, "cuBLASLt: {} gives status {}", what, status);
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }
uint32_t alignment_of(const void* p) {
  return static_cast<uint32_t>(std::min(address(p) & (~address(p) + 1), kExpected));
}

// What is made for one product.
class Made {
 public:
  Made(Descriptor descriptor, int (*destroy)(Descriptor)) : descriptor_(descriptor), destroy_(destroy) {}
  ~Made() { destroy_(descriptor_); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  Descriptor get() const { return descriptor_; }

 private:
  Descriptor descriptor_;
  int (*destroy_)(Descriptor);
};

class Library : public Blas {
 public:
  Library(std::string path, const Functions& functions) : path_(std::move(path)), lib_(functions) {}
  const std::string& path() const override { return path_; }

  // The library's matrices have columns one behind the other: c^T = b^T a^T, and what lies by rows is transposed as it
  // is.
  void multiply(cuda::Card& card, const BlasProduct& p, const Workspace& workspace, Stream stream) const override {
    const cuda::Current current(card);
    const Made product = make_product(p), b = make_layout(p, p.b, p.inner, p.cols),
               a = make_layout(p, p.a, p.rows, p.inner), c = make_layout(p, {p.c, p.ldc}, p.rows, p.cols);
    const float one = 1.f, beta = p.add ? 1.f : 0.f;
    std::optional<Choice> choice;  // else the library's own, for operands as it expects them
    if ((address(p.a.data) | address(p.b.data) | address(p.c)) % kExpected != 0)
      choice = choose(card, p, product, b, a, c, workspace.bytes());
    require(lib_.cublasLtMatmul(handle_of(card), product.get(), &one, p.b.data, b.get(), p.a.data, a.get(), &beta, p.c,
                                c.get(), p.c, c.get(), choice ? choice->algorithm : nullptr, workspace.data(),
                                workspace.bytes(), stream.handle()),
            "cublasLtMatmul");
  }

 private:
  Made make_product(const BlasProduct& p) const {
    Descriptor made = nullptr;
    require(
        lib_.cublasLtMatmulDescCreate(&made, p.exact || p.dtype == DType::bf16 ? kComputeFp32 : kComputeTf32, kFp32),
        "cublasLtMatmulDescCreate");
    const int transposed = kTransposed;
    if (p.b.by_columns) lib_.cublasLtMatmulDescSetAttribute(made, kTransposeA, &transposed, sizeof transposed);
    if (p.a.by_columns) lib_.cublasLtMatmulDescSetAttribute(made, kTransposeB, &transposed, sizeof transposed);
    return {made, lib_.cublasLtMatmulDescDestroy};
  }
  Choice choose(const cuda::Card& card, const BlasProduct& p, const Made& product, const Made& b, const Made& a,
                const Made& c, size_t workspace_bytes) const {
    Descriptor made = nullptr;
    require(lib_.cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Made preference{made, lib_.cublasLtMatmulPreferenceDestroy};
    const auto set = [&](int attribute, auto value) {
      require(lib_.cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    set(kWorkspaceBytes, workspace_bytes);
    set(kAlignmentOfA, alignment_of(p.b.data));
    set(kAlignmentOfB, alignment_of(p.a.data));
    set(kAlignmentOfC, alignment_of(p.c));
    set(kAlignmentOfD, alignment_of(p.c));
    Choice choice = {};
    int found = 0;
    require(lib_.cublasLtMatmulAlgoGetHeuristic(handle_of(card), product.get(), b.get(), a.get(), c.get(), c.get(),
                                                made, 1, &choice, &found),
            "cublasLtMatmulAlgoGetHeuristic");
    require(found == 0 ? kNotSupported : choice.status, "no algorithm for these addresses");
    return choice;
  }
  Made make_layout(const BlasProduct& p, const BlasMatrix& m, int64_t rows, int64_t cols) const {
    if (!m.by_columns) std::swap(rows, cols);
    Descriptor made = nullptr;
    require(lib_.cublasLtMatrixLayoutCreate(&made, p.dtype == DType::bf16 ? kBf16 : kFp32, static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(cols), m.ld),
            "cublasLtMatrixLayoutCreate");
    return {made, lib_.cublasLtMatrixLayoutDestroy};
  }
  Handle handle_of(const cuda::Card& card) const {
    const std::scoped_lock lock(mutex_);
    Handle& handle = handles_[card.index()];
    if (handle == nullptr) require(lib_.cublasLtCreate(&handle), "cublasLtCreate");
    return handle;
  }

  std::string path_;
  Functions lib_;
  mutable std::mutex mutex_;
  mutable std::map<int, Handle> handles_;  // by card, for good
};

const Blas* load(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    why = error != nullptr ? error : "it cannot be loaded";
    return nullptr;
  }
  Functions functions;
#define WEFT_RESOLVE(name, ...)                                                   \
  functions.name = reinterpret_cast<int (*)(__VA_ARGS__)>(dlsym(library, #name)); \
  if (functions.name == nullptr) {                                                \
    why = "it has no " #name;                                                     \
    return nullptr;                                                               \
  }
  WEFT_BLAS_FUNCTIONS(WEFT_RESOLVE)
#undef WEFT_RESOLVE
  return new Library(path, functions);  // for good, as its handles
}

// Of no newer major version than the driver's.
BlasSearch search() {
  BlasSearch found;
  const std::optional<int> driver = cuda::driver_version();
  for (const std::string& folder : cuda::library_folders())
    for (const int major : {13, 12}) {
      const std::string path = fmt::format("{}/libcublasLt.so.{}", folder, major);
      std::error_code ignored;
      if (!std::filesystem::exists(path, ignored)) continue;
      std::string why;
      if (driver && major > *driver / 1000)
        why = fmt::format("the driver is for CUDA {}", *driver / 1000);
      else if ((found.blas = load(path, why)) != nullptr)
        return found;
      found.tried += fmt::format("{}{} ({})", found.tried.empty() ? "tried " : ", ", path, why);
    }
  if (cuda::library_folders().empty()) found.tried = "WEFT_CUDA_LIBS=none switches CUDA off";
  if (found.tried.empty()) found.tried = "no libcublasLt.so.12 or .13 in the folders of CUDA's libraries";
  found.remedy = "install it with `pip install nvidia-cublas-cu12`, or name its folder in WEFT_CUDA_LIBS";
  return found;
}

}  // namespace

const BlasSearch& find_blas() {
  static const BlasSearch* const found = new BlasSearch(search());
  return *found;
}

}  // namespace weft::ops
