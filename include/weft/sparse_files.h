// Files of sparse matrices and tensors, and of dense arrays, for the operators and programs of weft/sparse.h.
//
//   const MatrixData graph = read_matrix("graph.mtx");
//   const Converted a = csr_from_coo(graph.coo);
//   const Array values = values_at(graph.values, a.order), b = read_npy("b.npy");
//   Array c(DType::fp32, {a.structure.num_rows(), b.shape()[1]});
//   spmm(a.structure, values, b, c);
//   write_npy("c.npy", c);
//
// Readers throw Error(io_error) where a file cannot be read, Error(invalid_file) that names file and line where it is
// malformed, and Error(unsupported) for what such a file may hold and Weft does not read. Writers put a whole file in
// its place, or leave what was there; into a device or a pipe they write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/sparse.h"
#include "weft/tensor.h"

namespace weft::sparse {

// A dense array with memory of its own, row-major; passed where a TensorView is taken.
class Array {
 public:
  Array() = default;
  // Zeros. Throws Error(invalid_shape) for a negative extent or more than 6 of them.
  Array(DType dtype, std::vector<int64_t> shape);
  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  std::span<std::byte> bytes() { return bytes_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  TensorView view() const { return {bytes_.data(), dtype_, shape_}; }
  operator TensorView() const { return view(); }  // NOLINT: an array is what operators take

 private:
  DType dtype_ = DType::fp32;
  std::vector<int64_t> shape_ = {0};
  std::vector<std::byte> bytes_ = {};
};

// The same numbers as another type: fp32, fp64, fp16, bf16, int32 or int64. Reals are rounded to nearest, ties to even.
// Throws Error(invalid_dtype) from reals to integers, Error(invalid_argument) for an integer that does not fit.
Array converted(const Array& array, DType dtype);

// ---------------------------------------------------------------- matrices and tensors

// Elements in the order of the file.
struct MatrixData {
  Coo coo = {};
  std::vector<double> values = {};  // one an element; none where the file holds places alone
};
struct TensorData {
  CooTensor coo = {};
  std::vector<double> values = {};
};

// By the end of the name: Matrix Market (.mtx), .smtx (a line of sizes, one of indptr, one of indices), triples (.csv
// with relation, row and column, all relations together), FROSTT (.tns: coordinates from 1 on, then the value) of two
// dimensions. Matrix Market: `coordinate` of real, integer or pattern; symmetric, skew-symmetric and hermitian matrices
// get the elements of their other half. Complex ones have no values that programs take: read_places alone reads them.
MatrixData read_matrix(const std::string& path);
Coo read_places(const std::string& path);  // without the values
// .tns of any rank up to 6, or triples as relation, row, column.
TensorData read_tensor(const std::string& path);
bool is_tensor_file(std::string_view name);  // .tns or .csv, or one of them with .gz behind
// Of text in memory, as a packed file's; `name` says the format and stands in messages. ".gz" at its end is ignored.
MatrixData parse_matrix(std::string_view name, std::string_view text);
Coo parse_places(std::string_view name, std::string_view text);
TensorData parse_tensor(std::string_view name, std::string_view text);

// What stands at each position of a structure: values[order[p]], and 0 where the order, which a conversion tells, has
// no element. fp32, fp64, fp16, bf16, int32 or int64.
Array values_at(std::span<const double> values, std::span<const int64_t> order, DType dtype = DType::fp32);

// A Matrix Market file of real or integer elements; `values` has one for each of the list.
void write_matrix(const std::string& path, const Coo& coo, const TensorView& values);
// The dense form, `array`, of one or two dimensions.
void write_matrix(const std::string& path, const TensorView& matrix);

// ---------------------------------------------------------------- dense arrays

// NumPy's .npy, versions 1 to 3: fp16, fp32, fp64, int32, int64, and bf16 as ml_dtypes writes it ('<V2'), of either
// byte order; arrays in Fortran's order are put into C's.
Array read_npy(const std::string& path);
Array parse_npy(std::string_view name, std::string_view bytes);
// A contiguous tensor of these types in memory of the host.
void write_npy(const std::string& path, const TensorView& tensor);

}  // namespace weft::sparse
