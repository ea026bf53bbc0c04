// weft.sparse: files of sparse matrices and tensors, and of dense arrays (weft/sparse_files.h).
#include "weft/sparse_files.h"

#include <nanobind/stl/filesystem.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "module.h"
#include "objects.h"
#include "sparse.h"

namespace weft::python {
namespace {

using namespace sparse;
using Path = std::filesystem::path;

PyTensorView view_of(sparse::Array array) {
  const auto held = std::make_shared<sparse::Array>(std::move(array));
  return {{held->view(), false, held}, nb::none()};
}

// A list of elements with its values, which lie where the file was read to.
template <class List>
struct PyElements {
  List coo;
  PyTensorView values;
};

template <class Data>
auto elements_of(Data data) {
  const auto held = std::make_shared<std::vector<double>>(std::move(data.values));
  return PyElements<decltype(data.coo)>{
      std::move(data.coo), {{TensorView(held->data(), DType::fp64, {std::ssize(*held)}), false, held}, nb::none()}};
}

template <class List>
void define_elements(nb::module_& m, const char* name, const char* doc) {
  using Elements = PyElements<List>;
  nb::class_<Elements>(m, name, doc)
      .def_ro("coo", &Elements::coo)
      .def_ro("values", &Elements::values, "fp64 [nnz]; [0] where the file holds places alone.");
}

constexpr const char* kRaises =
    " Raises Error(io_error) where the file cannot be read, Error(invalid_file) naming file and line where it is "
    "malformed, and Error(unsupported) for what such a file may hold and Weft does not read.";

// `read` from a file, and `parse` from text in memory.
template <class Read, class Parse>
void define_reader(nb::module_& m, const std::string& what, const std::string& doc, Read read, Parse parse) {
  m.def(("read_" + what).c_str(),
        [read](const Path& path) {
          const WithoutGil free;
          return read(path.string());
        },
        nb::arg("path"), (doc + kRaises).c_str());
  m.def(("parse_" + what).c_str(),
        [parse](std::string_view name, std::string_view text) {
          const WithoutGil free;
          return parse(name, text);
        },
        nb::arg("name"), nb::arg("text"),
        ("Of text in memory, as a packed file's: `name` says the format and stands in messages; '.gz' at its end is "
         "ignored. Otherwise as read_" +
         what + ".")
            .c_str());
}

void define_readers(nb::module_& m) {
  define_elements<Coo>(m, "MatrixData", "A matrix' elements in the order of its file.");
  define_elements<CooTensor>(m, "TensorData", "A tensor's elements in the order of its file.");
  define_reader(
      m, "matrix",
      "A matrix, by the end of the name: Matrix Market (.mtx) with real, integer or pattern coordinates, whose "
      "symmetric, skew-symmetric and hermitian matrices get the elements of their other half; .smtx; triples (.csv "
      "with relation, row and column, all relations together); FROSTT (.tns) of two dimensions.",
      [](const std::string& path) { return elements_of(read_matrix(path)); },
      [](std::string_view name, std::string_view text) { return elements_of(parse_matrix(name, text)); });
  define_reader(
      m, "places", "A matrix' places without its values, also of a complex one.",
      [](const std::string& path) { return read_places(path); },
      [](std::string_view name, std::string_view text) { return parse_places(name, text); });
  define_reader(
      m, "tensor", ".tns of any rank up to 6, or triples (.csv) as relation, row, column.",
      [](const std::string& path) { return elements_of(read_tensor(path)); },
      [](std::string_view name, std::string_view text) { return elements_of(parse_tensor(name, text)); });
  m.def("is_tensor_file", &is_tensor_file, nb::arg("name"), ".tns or .csv, or one of them with .gz behind.");
}

// ---------------------------------------------------------------- values and dense arrays

PyTensorView make_values_at(const ArrayLike& values, const IntsLike& order, DType dtype) {
  Arguments call;
  const TensorView given = call.read("values", values);
  check_vector("values", given, DType::fp64);
  const std::span<const double> numbers(given.as<const double>(), static_cast<size_t>(given.size()));
  const std::span<const int64_t> places = call.longs("order", order);
  return call.run([&] { return view_of(values_at(numbers, places, dtype)); });
}

PyTensorView make_converted(const ArrayLike& array, DType dtype) {
  Arguments call;
  const TensorView given = call.read("array", array);
  check(given.device().kind != DeviceKind::cuda, ErrorCode::invalid_device,
        "array: lies on {}; the host reads it: copy it first, with x.cpu()", to_string(given.device()));
  check_contiguous("array", given);
  return call.run([&] {
    sparse::Array copy(given.dtype(), {given.shape().begin(), given.shape().end()});
    if (!copy.bytes().empty()) std::memcpy(copy.bytes().data(), given.data(), copy.bytes().size());
    return view_of(converted(copy, dtype));
  });
}

void define_arrays(nb::module_& m) {
  m.def("values_at", &make_values_at, nb::arg("values"), nb::arg("order"), nb::arg("dtype") = DType::fp32,
        "What stands at each position of a structure: values[order[p]] of fp64 [nnz], and 0 where the order, int64 "
        "[positions], which a conversion tells, is -1. A new array of fp32, fp64, fp16, bf16, int32 or int64. Raises "
        "Error(invalid_argument) for an element that is none, Error(invalid_dtype | invalid_shape).");
  m.def(
      "converted", &make_converted, nb::arg("array"), nb::arg("dtype"),
      "A new array of the same numbers: fp32, fp64, fp16, bf16, int32 or int64. Reals are rounded to nearest, ties to "
      "even. Raises Error(invalid_dtype) from reals to integers, Error(invalid_argument) for an integer that does "
      "not fit.");
  m.def(
      "read_npy",
      [](const Path& path) {
        const WithoutGil free;
        return view_of(read_npy(path.string()));
      },
      nb::arg("path"),
      "NumPy's .npy, versions 1 to 3: fp16, fp32, fp64, int32, int64, and bf16 as ml_dtypes writes it, of either "
      "byte order; Fortran's order becomes C's. Raises Error(io_error | invalid_file | unsupported).");
  m.def(
      "parse_npy",
      [](std::string_view name, nb::bytes bytes) {
        const std::string_view text(bytes.c_str(), bytes.size());
        const WithoutGil free;
        return view_of(parse_npy(name, text));
      },
      nb::arg("name"), nb::arg("bytes"), "The same of bytes in memory; `name` stands in messages.");
  m.def(
      "write_npy",
      [](const Path& path, const ArrayLike& tensor) {
        Arguments call;
        const TensorView from = call.read("tensor", tensor);
        call.run([&] { write_npy(path.string(), from); });
      },
      nb::arg("path"), nb::arg("tensor"),
      "A contiguous array of these types in memory of the host. Puts a whole file in its place, or leaves what was "
      "there. Raises Error(io_error | invalid_dtype | invalid_stride | invalid_device).");
  m.def(
      "write_matrix",
      [](const Path& path, const Coo& coo, const ArrayLike& values) {
        Arguments call;
        const TensorView from = call.read("values", values);
        call.run([&] { write_matrix(path.string(), coo, from); });
      },
      nb::arg("path"), nb::arg("coo"), nb::arg("values"),
      "A Matrix Market file of real or integer elements; `values` [nnz] has one for each of the list. Puts a whole "
      "file in its place, or leaves what was there.");
  m.def(
      "write_matrix",
      [](const Path& path, const ArrayLike& matrix) {
        Arguments call;
        const TensorView from = call.read("matrix", matrix);
        call.run([&] { write_matrix(path.string(), from); });
      },
      nb::arg("path"), nb::arg("matrix"), "The dense form, `array`, of one or two dimensions.");
}

}  // namespace

void define_sparse_files(nb::module_& m) {
  define_readers(m);
  define_arrays(m);
}

}  // namespace weft::python
