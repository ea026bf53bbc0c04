// Random matrices, and what operators compute, densely and in double.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sparse/check.h"
#include "weft/sparse.h"

namespace weft::sparse::test {

using Values = std::vector<float>;

// A matrix with values, in CSR and densely.
struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<int32_t> indptr = {}, indices = {};
  Values values = {};
  std::vector<double> dense = {};
  Structure structure() const { return csr(rows, cols, indptr, indices); }
  TensorView values_view() const { return {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}; }
  Coo coo() const;
  double at(int64_t i, int64_t j) const { return dense[static_cast<size_t>(i * cols + j)]; }
};
enum class Shape { uniform, power_law, empty_rows, one_dense_row, empty, no_rows, blocks };
inline constexpr Shape kShapes[] = {Shape::uniform, Shape::power_law, Shape::empty_rows, Shape::one_dense_row,
                                    Shape::empty,   Shape::no_rows,   Shape::blocks};
// For what is interpreted or compiled for each: under a sanitizer, which sees the same in all, three of them in turns.
std::vector<Shape> some_shapes();
const char* name_of(Shape shape);
Matrix random_matrix(Shape shape, uint32_t seed);

// Its elements in relations 0 and 2 of three, in turns.
CooTensor in_relations(const Matrix& a);
// SpMM on J whose names are words of C++ and CUDA, and what generated text declares, in every role: `scalars` is
// `float` times `weft_find`.
extern const char* const kNamedAsWords;
// The text of a program of examples/sparse.
std::string example(const std::string& name);

Values random_values(size_t count, uint32_t seed);
inline TensorView view(Values& values, std::initializer_list<int64_t> shape) {
  return {values.data(), DType::fp32, shape};
}
inline TensorView flat(Values& values) { return view(values, {static_cast<int64_t>(values.size())}); }
inline TensorView flat(std::vector<int32_t>& values) {
  return {values.data(), DType::int32, {static_cast<int64_t>(values.size())}};
}
// Values where a format puts them, `nothing` where it has none.
Values placed(const Values& values, const std::vector<int64_t>& order, float nothing = 0);
// indptr and indices of a structure in CSR.
std::pair<std::vector<int32_t>, std::vector<int32_t>> csr_arrays(const Structure& structure);
std::vector<double> dense_spmm(const Matrix& a, const Values& b, int64_t feat);
std::vector<double> dense_sddmm(const Matrix& a, const Values& x, const Values& y, int64_t feat);

// Compares within what fp32 sums of `terms` terms may differ.
void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what);
std::vector<double> doubles(const Values& values);

// Stages that are interpreted and compared. None under a thread sanitizer: interpreters start no thread.
std::span<const Stage> interpreted_stages(Stage first = Stage::one);

// Runs the operator through the interpreters, and compiled; compares each with `want` of the output.
void expect_everywhere(const Operator& op, const RunArguments& arguments, const std::string& output,
                       const std::vector<double>& want, const std::string& what);

// Runs rgms of examples/sparse, in whatever form, everywhere: y[i] += a x[j] w[r] over edges (r, i, j) with random a, x
// and w. `stored`: the structure of J, made of the edges.
void expect_rgms(const Operator& op, const CooTensor& edges, const Converted& stored, int64_t in, int64_t out);

// The run fails so at every stage and, compiled, on one to four workers.
void expect_failure(const std::string& text, const std::string& schedule, const RunArguments& arguments,
                    const std::string& says, const std::map<std::string, int64_t>& set = {});

// Compiles up to the text of code, and interprets each stage of the scheduled program on random values: all outputs are
// what the program without a schedule computes. A structure of its axis J, if it has one, is random.
void expect_same_results(const std::string& program, const std::string& schedule,
                         const std::map<std::string, int64_t>& set);
// The same where its axis J is that structure.
void expect_same_results_on(const Structure& structure, const std::string& program, const std::string& schedule,
                            const std::map<std::string, int64_t>& set = {});

}  // namespace weft::sparse::test
