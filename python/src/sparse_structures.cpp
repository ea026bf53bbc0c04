// weft.sparse: structures, lists of elements, and conversions from those.

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "module.h"
#include "objects.h"
#include "sparse.h"
#include "struct.h"
#include "weft/sparse.h"

namespace weft {

namespace python {

// weft.sparse.StoredAxis
struct PyStoredAxis {
  sparse::AxisKind kind = sparse::AxisKind::dense_fixed;
  int64_t length = 0, nnz_cols = 0;
  std::optional<IntsLike> indptr = {}, indices = {};
  std::string name = {};
};

}  // namespace python

template <>
struct Fields<python::PyStoredAxis> {
  using Axis = python::PyStoredAxis;
  static constexpr auto list =
      field_list(Field{"kind", &Axis::kind}, Field{"length", &Axis::length}, Field{"nnz_cols", &Axis::nnz_cols},
                 Field{"indptr", &Axis::indptr}, Field{"indices", &Axis::indices}, Field{"name", &Axis::name});
};

namespace python {

void check_vector(const char* name, const TensorView& view, DType dtype) {
  check(view.device().kind != DeviceKind::cuda, ErrorCode::invalid_device,
        "{}: lies on {}; the host reads it: copy it first, with x.cpu()", name, to_string(view.device()));
  check(view.rank() == 1, ErrorCode::invalid_shape, "{}: has shape {}; one axis is required", name, shape_string(view));
  check(view.dtype() == dtype, ErrorCode::invalid_dtype,
        "{0}: its elements are {1}; required are {2}: copy it first, with x.astype('{3}') or x.to(torch.{3})", name,
        to_string(view.dtype()), to_string(dtype), dtype == DType::fp32 ? "float32" : "float64");
  check_contiguous(name, view);
}

namespace {

using namespace sparse;

// ---------------------------------------------------------------- arrays of indices

IndexArray index_array(Arguments& call, std::string_view name, const std::optional<IntsLike>& array) {
  if (array && call.are_longs(name, *array)) return call.longs(name, array);
  return call.ints(name, array);
}

// A copy of an array of either width; the conversions name what lies outside of the matrix.
std::vector<int32_t> indices_of(Arguments& call, std::string_view name, const IntsLike& array) {
  const IndexArray given = index_array(call, name, array);
  if (const auto* narrow = std::get_if<std::span<const int32_t>>(&given)) return {narrow->begin(), narrow->end()};
  const auto& wide = std::get<std::span<const int64_t>>(given);
  std::vector<int32_t> indices(wide.size());
  for (size_t e = 0; e < wide.size(); ++e) {
    check(wide[e] >= 0 && wide[e] <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
          "{}[{}] = {}; allowed are 0 to {}", name, e, wide[e], std::numeric_limits<int32_t>::max());
    indices[e] = static_cast<int32_t>(wide[e]);
  }
  return indices;
}

PyTensorView order_of(const std::vector<int64_t>& order) {
  return array_of(std::span<const int64_t>(order), DType::int64);
}
PyTensorView indices_as_array(const std::vector<int32_t>& indices) {
  return array_of(std::span<const int32_t>(indices), DType::int32);
}

// ---------------------------------------------------------------- structures

Structure make_csr(int64_t num_rows, int64_t num_cols, const IntsLike& indptr, const IntsLike& indices) {
  Arguments call;
  const bool wide = call.are_longs("indptr", indptr);
  check(wide == call.are_longs("indices", indices), ErrorCode::invalid_dtype,
        "indptr and indices: one is int64 and the other int32; give both the same type");
  if (wide) {
    const std::span<const int64_t> rows = call.longs("indptr", indptr), cols = call.longs("indices", indices);
    return call.run([&] { return csr(num_rows, num_cols, rows, cols); });
  }
  const std::span<const int32_t> rows = call.ints("indptr", indptr), cols = call.ints("indices", indices);
  return call.run([&] { return csr(num_rows, num_cols, rows, cols); });
}

Structure make_structure_of(const std::vector<PyStoredAxis>& axes) {
  Arguments call;
  std::vector<StoredAxis> stored;
  for (size_t a = 0; a < axes.size(); ++a) {
    const PyStoredAxis& axis = axes[a];
    const auto array = [&](const char* what, const std::optional<IntsLike>& given) {
      return index_array(call, fmt::format("axes[{}].{}", a, what), given);
    };
    stored.push_back({.kind = axis.kind,
                      .length = axis.length,
                      .nnz_cols = axis.nnz_cols,
                      .indptr = array("indptr", axis.indptr),
                      .indices = array("indices", axis.indices),
                      .name = axis.name});
  }
  return call.run([&] { return structure_of(stored); });
}

void define_structures(nb::module_& m) {
  nb::class_<Structure>(m, "Structure",
                        "Which coordinates a sparse tensor stores, without values: the arrays of a chain of axes. "
                        "Immutable, safe to use from any thread.")
      .def_prop_ro("num_rows", &Structure::num_rows)
      .def_prop_ro("num_cols", &Structure::num_cols)
      .def_prop_ro("nnz", &Structure::nnz, "Positions of the last axis: padding counts.");
  m.def("csr", &make_csr, nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("indptr"), nb::arg("indices"),
        "Compressed rows: indptr [num_rows + 1], indices [nnz], both int32 or both int64 with numbers that fit 32 "
        "bits. They are checked and copied; values are given to each call. Raises Error(invalid_indptr | "
        "invalid_argument) naming the first wrong element: an indptr begins at 0 and never falls, indices of a row "
        "rise and lie below num_cols.");
  m.def(
      "ell",
      [](int64_t num_rows, int64_t num_cols, int64_t width, const IntsLike& indices) {
        Arguments call;
        const std::span<const int32_t> cols = call.ints("indices", indices);
        return call.run([&] { return ell(num_rows, num_cols, width, cols); });
      },
      nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("width"), nb::arg("indices"),
      "`width` places a row, indices int32 [num_rows * width]; a place that is not used holds num_cols, behind those "
      "that are. Raises Error(invalid_argument) naming the first wrong element.");
  m.def(
      "ragged",
      [](int64_t num_rows, int64_t max_length, const IntsLike& indptr) {
        Arguments call;
        const std::span<const int32_t> rows = call.ints("indptr", indptr);
        return call.run([&] { return ragged(num_rows, max_length, rows); });
      },
      nb::arg("num_rows"), nb::arg("max_length"), nb::arg("indptr"),
      "Rows of any length up to max_length, dense: element j of row i is at column j. indptr int32 [num_rows + 1]. "
      "Raises Error(invalid_indptr).");
  nb::enum_<AxisKind>(m, "AxisKind", "How an axis is stored, as programs declare it.")
      .value("dense_fixed", AxisKind::dense_fixed)
      .value("dense_variable", AxisKind::dense_variable)
      .value("sparse_fixed", AxisKind::sparse_fixed)
      .value("sparse_variable", AxisKind::sparse_variable);
  bind_struct<PyStoredAxis>(
      m, "StoredAxis",
      "An axis with its arrays, int32 or int64. `length`: coordinates are below it. nnz_cols, of a sparse_fixed one: "
      "positions below each position of the axis before. indptr, of a variable one: [positions of the axis before + "
      "1]. indices, of a sparse one: [positions]; of a sparse_fixed one, `length` is a place that is not used. `name` "
      "stands in messages.");
  m.def("structure_of", &make_structure_of, nb::arg("axes"),
        "The structure of a chain of axes, each below the one before; the first is dense_fixed and the others are not. "
        "So a program on axes of any kinds gets its structure. Arrays are checked and copied. Raises "
        "Error(invalid_indptr | invalid_argument) naming axis, array and place.");
  nb::class_<Transposed>(m, "Transposed", "CSR of a transpose.")
      .def_ro("structure", &Transposed::structure)
      .def_prop_ro(
          "order", [](const Transposed& self) { return indices_as_array(self.order); },
          "int32 [nnz]: where the matrix holds what the transpose stores at each position.");
  m.def(
      "transposed",
      [](const Structure& a) {
        const WithoutGil free;
        return transposed(a);
      },
      nb::arg("a"), "Of a matrix in CSR; the gradients take it. Raises Error(unsupported) for another structure.");
  m.def(
      "band", [](int64_t num_blocks, int64_t reach) { return band(num_blocks, reach); }, nb::arg("num_blocks"),
      nb::arg("reach"),
      "Blocks within `reach` of the diagonal (Longformer), as block_spmm and block_sddmm take them. Raises "
      "Error(invalid_argument).");
  m.def(
      "butterfly", [](int64_t num_blocks, int64_t stride) { return butterfly(num_blocks, stride); },
      nb::arg("num_blocks"), nb::arg("stride"),
      "Blocks whose numbers differ in at most one bit, up to `stride` (Pixelated Butterfly). Raises "
      "Error(invalid_argument).");
}

// ---------------------------------------------------------------- lists of elements

void define_lists(nb::module_& m) {
  nb::class_<Coo>(m, "Coo", "Elements of a matrix in any order, none twice.")
      .def(
          "__init__",
          [](Coo* self, int64_t num_rows, int64_t num_cols, const IntsLike& rows, const IntsLike& cols) {
            Arguments call;
            std::vector<int32_t> r = indices_of(call, "rows", rows), c = indices_of(call, "cols", cols);
            new (self) Coo{num_rows, num_cols, std::move(r), std::move(c)};
          },
          nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("rows"), nb::arg("cols"),
          "rows, cols: int32 or int64 [nnz], which are copied. What they hold is checked by who takes the list.")
      .def_ro("num_rows", &Coo::num_rows)
      .def_ro("num_cols", &Coo::num_cols)
      .def_prop_ro("nnz", [](const Coo& self) { return self.rows.size(); })
      .def_prop_ro(
          "rows", [](const Coo& self) { return indices_as_array(self.rows); }, "A copy, int32 [nnz].")
      .def_prop_ro(
          "cols", [](const Coo& self) { return indices_as_array(self.cols); }, "A copy, int32 [nnz].");
  nb::class_<CooTensor>(m, "CooTensor", "Elements of a tensor of any rank, in any order, none twice.")
      .def(
          "__init__",
          [](CooTensor* self, std::vector<int64_t> extents, const std::vector<IntsLike>& coordinates) {
            Arguments call;
            CooTensor made{std::move(extents), {}};
            for (size_t d = 0; d < coordinates.size(); ++d)
              made.coordinates.push_back(indices_of(call, fmt::format("coordinates[{}]", d), coordinates[d]));
            new (self) CooTensor(std::move(made));
          },
          nb::arg("extents"), nb::arg("coordinates"),
          "coordinates: for each axis int32 or int64 [nnz], below that extent; they are copied.")
      .def_ro("extents", &CooTensor::extents)
      .def_prop_ro("nnz",
                   [](const CooTensor& self) { return self.coordinates.empty() ? 0 : self.coordinates[0].size(); })
      .def_prop_ro(
          "coordinates",
          [](const CooTensor& self) {
            std::vector<PyTensorView> all;
            for (const std::vector<int32_t>& axis : self.coordinates) all.push_back(indices_as_array(axis));
            return all;
          },
          "Copies, int32 [nnz] each.");
  nb::class_<Merged>(m, "Merged", "Each place of a list once, sorted.")
      .def_ro("coo", &Merged::coo)
      .def_prop_ro(
          "place", [](const Merged& self) { return order_of(self.place); },
          "int64 [elements of the list]: which of `coo` each adds to.");
  m.def(
      "merged",
      [](const Coo& coo) {
        const WithoutGil free;
        return merged(coo);
      },
      nb::arg("coo"),
      "Of a list in which elements may stand twice. Raises Error(invalid_argument) for one outside of the matrix.");
  m.def(
      "summed",
      [](const Merged& merged, const ArrayLike& values) {
        Arguments call;
        const TensorView given = call.read("values", values);
        check_vector("values", given, DType::fp32);
        const std::span<const float> numbers(given.as<const float>(), static_cast<size_t>(given.size()));
        const std::vector<float> sums = call.run([&] { return summed(merged, numbers); });
        return array_of(std::span<const float>(sums), DType::fp32);
      },
      nb::arg("merged"), nb::arg("values"),
      "values fp32 [elements of the list], added up where elements stand at one place, in the order of the list: fp32 "
      "[merged.coo.nnz]. Raises Error(invalid_shape | invalid_dtype).");
}

// ---------------------------------------------------------------- conversions

// Whether values of the list can be taken where they lie.
bool keeps_order(const Converted& converted) {
  for (size_t p = 0; p < converted.order.size(); ++p)
    if (converted.order[p] != static_cast<int64_t>(p)) return false;
  return true;
}

template <class Result, class List, class... Numbers, class... Names>
void conversion(nb::module_& m, const char* name, Result (*convert)(const List&, Numbers...), const char* list,
                const char* doc, const Names&... names) {
  const std::string text = std::string(doc) +
                           " Raises Error(invalid_argument) naming an element that lies outside, or stands twice, and "
                           "for other numbers than allowed.";
  m.def(
      name,
      [convert](const List& given, Numbers... numbers) {
        const WithoutGil free;
        return convert(given, numbers...);
      },
      nb::arg(list), names..., text.c_str());
}

void define_conversions(nb::module_& m) {
  nb::class_<Converted>(m, "Converted", "A structure, and which element of the list stands at each of its positions.")
      .def_ro("structure", &Converted::structure)
      .def_prop_ro(
          "order", [](const Converted& self) { return order_of(self.order); },
          "A copy, int64 [nnz]: the element of the list; -1: none.")
      .def_prop_ro("keeps_order", &keeps_order,
                   "Whether each position holds the element of that number, and none besides: then the list's values "
                   "are those of the structure as they are.");
  nb::class_<Diagonals>(m, "Diagonals",
                        "Diagonals that hold something: values [diagonal, row], of column row + offset.")
      .def_ro("structure", &Diagonals::structure)
      .def_prop_ro(
          "offsets", [](const Diagonals& self) { return indices_as_array(self.offsets); }, "A copy, int32 [diagonals].")
      .def_prop_ro(
          "order", [](const Diagonals& self) { return order_of(self.order); },
          "A copy, int64 [diagonals * rows]: the element of the list; -1: none.");
  const nb::arg block("block");
  conversion(m, "csr_from_coo", &csr_from_coo, "coo", "Compressed rows.");
  conversion(m, "ell_from_coo", &ell_from_coo, "coo", "As wide as the longest row.");
  conversion(m, "bsr_from_coo", &bsr_from_coo, "coo",
             "Blocks that hold something, values [nnzb, block, block]; bind the axis of block columns.", block);
  conversion(m, "coo_from_coo", &coo_from_coo, "coo", "Elements, below each an axis of its row and one of its column.");
  conversion(m, "ragged_from_coo", &ragged_from_coo, "coo", "Rows as long as their elements; columns are not kept.");
  conversion(m, "csc_from_coo", &csc_from_coo, "coo", "CSR of the transpose: num_rows is that of columns.");
  conversion(m, "dcsr_from_coo", &dcsr_from_coo, "coo",
             "Below an axis of one, rows that hold something, and their columns.");
  conversion(m, "dbsr_from_coo", &dbsr_from_coo, "coo",
             "Blocks of block rows that hold something, values [nnzb, block, block].", block);
  conversion(m, "sr_bcrs_from_coo", &sr_bcrs_from_coo, "coo",
             "Strips of t rows; of a strip's columns that hold something, groups of g, whose padding holds num_cols: "
             "values [groups, g, t].",
             nb::arg("t"), nb::arg("g"));
  conversion(m, "hyb_from_coo", &hyb_from_coo, "coo",
             "hyb(c, k): of each of c column partitions its k + 1 buckets of rows, one after another, bucket i of rows "
             "of 2^i places; padding holds num_cols.",
             nb::arg("c"), nb::arg("k"));
  conversion(m, "dia_from_coo", &dia_from_coo, "coo", "Diagonals that hold something.");
  conversion(m, "csf_from_coo", &csf_from_coo, "coo", "Below an axis of one, a sparse axis for each dimension.");
  conversion(m, "relations_from_coo", &relations_from_coo, "coo",
             "Elements (relation, row, column): a dense axis of relations, below each rows that hold something, and "
             "columns.");
  conversion(m, "relational_from_coo", &relational_from_coo, "edges",
             "Edges (relation, row, column) as rgms takes them: tiles of rows, below each its relations, rows and "
             "columns. tune_rgms says which tile is fastest.",
             nb::arg("tile") = 64);
}

}  // namespace

void define_sparse_structures(nb::module_& m) {
  define_structures(m);
  define_lists(m);
  define_conversions(m);
}

}  // namespace python
}  // namespace weft
