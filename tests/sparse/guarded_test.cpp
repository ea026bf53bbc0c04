// Compiled code reads and writes nothing behind a tensor or an array of a structure: each ends where a page begins that
// nobody may touch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>

#include "tests/sparse/support.h"
#include "tests/support/guarded_arrays.h"

namespace weft::sparse::test {
namespace {

// A copy that ends a page.
class Guarded {
 public:
  Guarded(const void* from, size_t bytes) {
    const testing::GuardedArrays guard;
    memory_ = std::make_unique_for_overwrite<char[]>(bytes);
    std::memcpy(memory_.get(), from, bytes);
  }
  template <class T>
  explicit Guarded(const std::vector<T>& list) : Guarded(list.data(), list.size() * sizeof(T)) {}
  void* data() const { return memory_.get(); }

 private:
  std::unique_ptr<char[]> memory_;
};

// What X and Y, of `some` elements, are read at while k goes further: what is absent is 0.
constexpr const char* kGuardedValues[] = {"X[k] + Y[k]",     "X[k - 2]", "select(k < 3, X[k], Y[k - 3])",
                                          "X[k] * Y[k + 1]", "X[k + k]", "select(k % 2 == 0, X[k // 2], Y[k])"};

// An iteration for each over [all].
std::string guarded_program(const std::string& type, int all, int some) {
  std::string text = fmt::format("program p():\n  K = dense_fixed({})\n  L = dense_fixed({})\n", all, some);
  for (const char* name : {"X", "Y"}) text += fmt::format("  {} = buffer(L): {}\n", name, type);
  for (size_t n = 0; n < std::size(kGuardedValues); ++n) text += fmt::format("  Z{} = buffer(K): {}\n", n, type);
  for (size_t n = 0; n < std::size(kGuardedValues); ++n)
    text += fmt::format("  iterate a{0}(K) \"S\" as (k):\n    Z{0}[k] = {1}\n", n, kGuardedValues[n]);
  return text;
}

TEST(Guarded, ConditionsThatAreKnownReadNothingBehindATensor) {
  for (const DType dtype : {DType::fp32, DType::fp64, DType::int32})
    for (const auto& [all, some] : {std::pair(4, 3), {8, 5}, {8, 7}, {16, 13}}) {
      std::map<std::string, Guarded> tensors;
      RunArguments arguments;
      const auto add = [&](const std::string& name, int count) {
        const std::vector<char> zeros(static_cast<size_t>(count * bits_of(dtype) / 8));
        const Guarded& memory = tensors.emplace(name, Guarded(zeros)).first->second;
        arguments.buffers[name] = TensorView(memory.data(), dtype, {count});
      };
      add("X", some), add("Y", some);
      for (size_t n = 0; n < std::size(kGuardedValues); ++n) add(fmt::format("Z{}", n), all);
      for (const char* line : {"", "unroll(a{0}.k)\n", "vectorize(a{0}.k)\n"}) {
        std::string schedule = "lower()\n";
        for (size_t n = 0; n < std::size(kGuardedValues); ++n) schedule += fmt::format(fmt::runtime(line), n);
        compile(parse(guarded_program(std::string(weft::to_string(dtype)), all, some)), schedule).run(arguments);
      }
    }
}

// Rows in fours, of which the last is padded: several of its elements share a condition.
TEST(Guarded, RowsThatArePaddedReadNothingBehindATensor) {
  for (const auto& [m, n, k] : {std::tuple(3, 2, 3), {3, 4, 2}, {7, 2, 2}, {6, 3, 5}}) {
    const std::string text = fmt::format(
        "program p():\n  I = dense_fixed({})\n  J = dense_fixed({})\n  K = dense_fixed({})\n  A = buffer(I, K): fp32\n"
        "  B = buffer(K, J): fp32\n  C = buffer(I, J): fp32\n  iterate h(I, J, K) \"SSR\" as (i, j, k):\n    init:\n"
        "      C[i, j] = 0.0\n    C[i, j] = C[i, j] + A[i, k] * B[k, j]\n",
        m, n, k);
    const char* schedule =
        "lower()\nouter, inner = split(h.i, 4)\nreorder(h.outer, h.k, h.inner, h.j)\n"
        "decompose_reduction(h.k)\ntensorize(h.k, product)\n";
    const Values a = random_values(static_cast<size_t>(m * k), 5), b = random_values(static_cast<size_t>(k * n), 6);
    const Guarded x(a), y(b), z(Values(static_cast<size_t>(m * n)));
    const TensorView out(z.data(), DType::fp32, {m, n});
    RunArguments arguments;
    arguments.buffers["A"] = TensorView(x.data(), DType::fp32, {m, k});
    arguments.buffers["B"] = TensorView(y.data(), DType::fp32, {k, n});
    arguments.buffers["C"] = out;
    compile(parse(text), schedule).run(arguments);
    std::vector<double> expected(static_cast<size_t>(m * n));
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        for (int l = 0; l < k; ++l)
          expected[static_cast<size_t>(i * n + j)] +=
              a[static_cast<size_t>(i * k + l)] * b[static_cast<size_t>(l * n + j)];
    expect_close(values_of(out), expected, 1e-5, fmt::format("{} x {} x {}", m, n, k));
  }
}

TEST(Guarded, ProductsReadNothingBehindTensorsAndArrays) {
  for (const int64_t feat : {3, 8, 13})
    for (const Shape shape : {Shape::uniform, Shape::one_dense_row})
      for (const char* format : {"csr", "ell(3), csr()", "bsr(2)", "hyb(1, 2)"}) {
        const Matrix a = random_matrix(shape, 3);
        const Guarded values(a.values), b(random_values(static_cast<size_t>(a.cols * feat), 4)),
            c(Values(static_cast<size_t>(a.rows * feat)));
        const Structure structure = [&] {
          const testing::GuardedArrays guard;
          return a.structure();
        }();
        const TensorView out(c.data(), DType::fp32, {a.rows, feat});
        spmm(structure, {values.data(), DType::fp32, {static_cast<int64_t>(a.values.size())}},
             {b.data(), DType::fp32, {a.cols, feat}}, out, {.format = format});
        expect_close(values_of(out), dense_spmm(a, random_values(static_cast<size_t>(a.cols * feat), 4), feat), 1e-5,
                     fmt::format("{} of {}, {}", format, name_of(shape), feat));
      }
}

}  // namespace
}  // namespace weft::sparse::test
