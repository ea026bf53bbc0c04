#include "ops/cuda/blas.h"

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>

#include "base/check.h"
#include "device/cuda/folders.h"

namespace weft::ops {
namespace {

// Our own declarations of the part that is called (cublasLt.h of version 12 and 13).
using Handle = void*;
using Descriptor = void*;
constexpr int kSuccess = 0, kNotSupported = 15;
constexpr int kFp32 = 0, kComputeFp32 = 68, kComputeTf32 = 77;  // cudaDataType_t, cublasComputeType_t
constexpr int kTransposeA = 3, kTransposed = 1;                 // an attribute of products, its value

#define WEFT_BLAS_FUNCTIONS(X)                                                                                      \
  X(cublasLtCreate, Handle*)                                                                                        \
  X(cublasLtMatmulDescCreate, Descriptor*, int, int)                                                                \
  X(cublasLtMatmulDescDestroy, Descriptor)                                                                          \
  X(cublasLtMatmulDescSetAttribute, Descriptor, int, const void*, size_t)                                           \
  X(cublasLtMatrixLayoutCreate, Descriptor*, int, uint64_t, uint64_t, int64_t)                                      \
  X(cublasLtMatrixLayoutDestroy, Descriptor)                                                                        \
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

  // The library's matrices have columns one behind the other: y^T = w x^T, w as the transposed of [cols, outputs].
  void multiply(cuda::Card& card, const BlasProduct& p, const Workspace& workspace, Stream stream) const override {
    const cuda::Current current(card);
    const Made product = make_product(p.exact ? kComputeFp32 : kComputeTf32),
               w = make_layout(p.cols, p.outputs, p.cols), x = make_layout(p.cols, p.rows, p.ldx),
               y = make_layout(p.outputs, p.rows, p.ldy);
    const float one = 1.f, beta = p.add ? 1.f : 0.f;
    require(lib_.cublasLtMatmul(handle_of(card), product.get(), &one, p.w, w.get(), p.x, x.get(), &beta, p.y, y.get(),
                                p.y, y.get(), nullptr, workspace.data(), workspace.bytes(), stream.handle()),
            "cublasLtMatmul");
  }

 private:
  Made make_product(int compute) const {
    Descriptor made = nullptr;
    require(lib_.cublasLtMatmulDescCreate(&made, compute, kFp32), "cublasLtMatmulDescCreate");
    const int transposed = kTransposed;
    lib_.cublasLtMatmulDescSetAttribute(made, kTransposeA, &transposed, sizeof transposed);
    return {made, lib_.cublasLtMatmulDescDestroy};
  }
  Made make_layout(int64_t rows, int64_t cols, int64_t ld) const {
    Descriptor made = nullptr;
    require(lib_.cublasLtMatrixLayoutCreate(&made, kFp32, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
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

BlasSearch search() {
  BlasSearch found;
  for (const std::string& folder : cuda::library_folders())
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      const std::string path = folder + "/" + name;
      std::error_code ignored;
      if (!std::filesystem::exists(path, ignored)) continue;
      std::string why;
      if ((found.blas = load(path, why)) != nullptr) return found;
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
