// sparse_contestant WAY [MKL]: SpMM c = a b over CSR in fp32 as others do it, rows as in protocol.h.
//   loops   nested loops, as sparse tensor compilers emit them for CSR
//   eigen   Eigen's row-major sparse matrix by a row-major dense one
//   mkl     MKL's inspector-executor: create, hint, optimize, mm into a kept output; MKL: the path of libmkl_rt.so
#include <dlfcn.h>
#include <omp.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "protocol.h"

#if __has_include(<Eigen/Sparse>)
#include <Eigen/Dense>
#include <Eigen/Sparse>
#define HAS_EIGEN 1
#endif

namespace {

using nlohmann::json;

struct Problem {
  int64_t rows = 0, cols = 0, nnz = 0, feat = 0;
  std::vector<int32_t> indptr, indices;
  std::vector<float> values, b, c;
};

std::shared_ptr<Problem> read(const json& row) {
  auto p = std::make_shared<Problem>();
  p->feat = row.at("feat");
  std::ifstream file(row.at("matrix").get<std::string>(), std::ios::binary);
  int64_t sizes[3] = {};
  file.read(reinterpret_cast<char*>(sizes), sizeof sizes);
  if (!file) throw std::runtime_error("the matrix cannot be read");
  p->rows = sizes[0], p->cols = sizes[1], p->nnz = sizes[2];
  p->indptr.resize(static_cast<size_t>(p->rows) + 1);
  p->indices.resize(static_cast<size_t>(p->nnz));
  file.read(reinterpret_cast<char*>(p->indptr.data()), static_cast<std::streamsize>(p->indptr.size() * 4));
  file.read(reinterpret_cast<char*>(p->indices.data()), static_cast<std::streamsize>(p->indices.size() * 4));
  if (!file) throw std::runtime_error("the matrix ends early");
  p->values.assign(static_cast<size_t>(p->nnz), 0.5f);
  p->b.resize(static_cast<size_t>(p->cols * p->feat));
  for (size_t i = 0; i < p->b.size(); ++i) p->b[i] = static_cast<float>(i % 977) / 977.f;
  p->c.assign(static_cast<size_t>(p->rows * p->feat), 0.f);
  return p;
}

// Its own function with arrays that do not overlap, as a compiler of tensors hands them to a C compiler.
void loop(int64_t rows, int64_t feat, const int32_t* __restrict indptr, const int32_t* __restrict indices,
          const float* __restrict values, const float* __restrict b, float* __restrict c) {
#pragma omp parallel for schedule(dynamic, 32)
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < feat; ++k) c[i * feat + k] = 0;
    for (int32_t p = indptr[i]; p < indptr[i + 1]; ++p) {
      float value = values[p];
      asm volatile("" : "+x"(value));  // or gcc takes two elements at once, without vectors
      const float* other = b + indices[p] * feat;
      for (int64_t k = 0; k < feat; ++k) c[i * feat + k] = c[i * feat + k] + value * other[k];
    }
  }
}

// The few functions of MKL that it takes, by their documented interface.
struct Mkl {
  struct Description {
    int type = 20, mode = 40, diagonal = 50;  // general
  };
  using Matrix = void*;
  int (*create)(Matrix*, int, int, int, int*, int*, int*, float*) = nullptr;
  int (*hint)(Matrix, int, Description, int, int, int) = nullptr;
  int (*optimize)(Matrix) = nullptr;
  int (*multiply)(int, float, Matrix, Description, int, const float*, int, int, float, float*, int) = nullptr;

  explicit Mkl(const std::string& path, int threads) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) throw std::runtime_error(std::string("MKL has no ") + name);
    };
    find(create, "mkl_sparse_s_create_csr");
    find(hint, "mkl_sparse_set_mm_hint");
    find(optimize, "mkl_sparse_optimize");
    find(multiply, "mkl_sparse_s_mm");
    void (*set_threads)(int) = nullptr;
    find(set_threads, "MKL_Set_Num_Threads");
    set_threads(threads);
  }
};
void expect_success(int status) {
  if (status != 0) throw std::runtime_error("MKL says " + std::to_string(status));
}

contest::Reading timed(std::function<void()> operation) {
  operation();
  return [operation = std::move(operation)] { return contest::mean_seconds(operation); };
}

contest::Reading prepare(const std::string& way, const std::string& mkl_path, const json& row) {
  if (row.at("kind") != "spmm") throw std::invalid_argument("it is measured with SpMM");
  const auto p = read(row);
  const int threads = row.at("threads");
  omp_set_num_threads(threads);
  if (way == "loops")
    return timed([p] {
      loop(p->rows, p->feat, p->indptr.data(), p->indices.data(), p->values.data(), p->b.data(), p->c.data());
    });
#if defined(HAS_EIGEN)
  if (way == "eigen")
    return timed([p] {
      using Dense = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
      const Eigen::Map<const Eigen::SparseMatrix<float, Eigen::RowMajor>> a(p->rows, p->cols, p->nnz, p->indptr.data(),
                                                                            p->indices.data(), p->values.data());
      const Eigen::Map<const Dense> b(p->b.data(), p->cols, p->feat);
      Eigen::Map<Dense> c(p->c.data(), p->rows, p->feat);
      c.noalias() = a * b;
    });
#endif
  if (way != "mkl") throw std::invalid_argument("the header Eigen/Sparse is not installed");
  const auto mkl = std::make_shared<Mkl>(mkl_path, threads);
  constexpr int kNoTranspose = 10, kRowMajor = 101, kCalls = 1000;
  Mkl::Matrix matrix = nullptr;
  expect_success(mkl->create(&matrix, 0, static_cast<int>(p->rows), static_cast<int>(p->cols), p->indptr.data(),
                             p->indptr.data() + 1, p->indices.data(), p->values.data()));
  mkl->hint(matrix, kNoTranspose, {}, kRowMajor, static_cast<int>(p->feat), kCalls);  // a hint may be refused
  expect_success(mkl->optimize(matrix));
  return timed([p, mkl, matrix] {
    const int feat = static_cast<int>(p->feat);
    expect_success(
        mkl->multiply(kNoTranspose, 1.f, matrix, {}, kRowMajor, p->b.data(), feat, feat, 0.f, p->c.data(), feat));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "loops", mkl = argc > 2 ? argv[2] : "libmkl_rt.so.3";
  return contest::serve([&](const json& row) { return prepare(way, mkl, row); });
}
