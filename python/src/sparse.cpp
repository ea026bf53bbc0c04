// weft.sparse: structures, programs and their operators (weft/sparse.h, weft/sparse_program.h).
#include "weft/sparse.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "enums.h"
#include "module.h"
#include "objects.h"
#include "sparse.h"
#include "weft/sparse_program.h"

namespace weft::python {
namespace {

using namespace sparse;

PyTensorView array_of(const std::vector<int64_t>& numbers) {
  const std::array<int64_t, 1> shape{std::ssize(numbers)};
  PyTensorView made{new_array(shape, DType::int64, Device::cpu()), nb::none()};
  std::copy(numbers.begin(), numbers.end(), made.array.view.as<int64_t>());
  return made;
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

Coo make_coo(int64_t num_rows, int64_t num_cols, const IntsLike& rows, const IntsLike& cols) {
  Arguments call;
  const std::span<const int32_t> r = call.ints("rows", rows), c = call.ints("cols", cols);
  return {num_rows, num_cols, {r.begin(), r.end()}, {c.begin(), c.end()}};
}

void define_structures(nb::module_& m) {
  nb::class_<Structure>(m, "Structure",
                        "Which coordinates a sparse tensor stores, without values: immutable, safe to use from any "
                        "thread.")
      .def_prop_ro("num_rows", &Structure::num_rows)
      .def_prop_ro("num_cols", &Structure::num_cols)
      .def_prop_ro("nnz", &Structure::nnz, "Positions of the last axis: padding counts.");
  m.def("csr", &make_csr, nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("indptr"), nb::arg("indices"),
        "Compressed rows, from int32 or int64 arrays, which are checked and copied; values are given to each call. "
        "Raises "
        "Error(invalid_indptr | invalid_argument) naming the first wrong element.");
  m.def(
      "ell",
      [](int64_t num_rows, int64_t num_cols, int64_t width, const IntsLike& indices) {
        Arguments call;
        return ell(num_rows, num_cols, width, call.ints("indices", indices));
      },
      nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("width"), nb::arg("indices"),
      "`width` places a row; a place that is not used holds num_cols, behind those that are.");
  m.def(
      "ragged",
      [](int64_t num_rows, int64_t max_length, const IntsLike& indptr) {
        Arguments call;
        return ragged(num_rows, max_length, call.ints("indptr", indptr));
      },
      nb::arg("num_rows"), nb::arg("max_length"), nb::arg("indptr"));
  nb::class_<Coo>(m, "Coo", "Elements of a matrix in any order, none twice.")
      .def(
          "__init__",
          [](Coo* self, int64_t num_rows, int64_t num_cols, const IntsLike& rows, const IntsLike& cols) {
            new (self) Coo(make_coo(num_rows, num_cols, rows, cols));
          },
          nb::arg("num_rows"), nb::arg("num_cols"), nb::arg("rows"), nb::arg("cols"), "int32 arrays, which are copied.")
      .def_ro("num_rows", &Coo::num_rows)
      .def_ro("num_cols", &Coo::num_cols)
      .def_prop_ro("nnz", [](const Coo& self) { return self.rows.size(); });

  const auto from_coo = [&](const char* name, Converted (*convert)(const Coo&), const char* doc) {
    m.def(
        name,
        [convert](const Coo& coo) {
          const WithoutGil free;
          return convert(coo);
        },
        nb::arg("coo"), doc);
  };
  nb::class_<Converted>(m, "Converted", "A structure, and which element of the list stands at each of its positions.")
      .def_ro("structure", &Converted::structure)
      .def_prop_ro(
          "order", [](const Converted& self) { return array_of(self.order); }, "int64 [nnz]; -1: none.");
  from_coo("csr_from_coo", &csr_from_coo, "Compressed rows.");
  from_coo("ell_from_coo", &ell_from_coo, "As wide as the longest row.");
  from_coo("coo_from_coo", &coo_from_coo, "Elements, below each an axis of its row and one of its column.");
  from_coo("csc_from_coo", &csc_from_coo, "Compressed columns: CSR of the transpose.");
  from_coo("dcsr_from_coo", &dcsr_from_coo, "Rows that hold something, and columns.");
  m.def("bsr_from_coo", &bsr_from_coo, nb::arg("coo"), nb::arg("block"), "Blocks that hold something.");
  m.def("dbsr_from_coo", &dbsr_from_coo, nb::arg("coo"), nb::arg("block"), "Blocks of block rows that hold something.");
  m.def("sr_bcrs_from_coo", &sr_bcrs_from_coo, nb::arg("coo"), nb::arg("t"), nb::arg("g"));
  m.def("hyb_from_coo", &hyb_from_coo, nb::arg("coo"), nb::arg("c"), nb::arg("k"),
        "hyb(c, k): of each column partition its k + 1 buckets, one after another.");
  nb::class_<CooTensor>(m, "CooTensor", "Elements of a tensor of any rank.")
      .def(
          "__init__",
          [](CooTensor* self, std::vector<int64_t> extents, const std::vector<IntsLike>& coordinates) {
            Arguments call;
            CooTensor made{std::move(extents), {}};
            for (const IntsLike& axis : coordinates) {
              const std::span<const int32_t> places = call.ints("coordinates", axis);
              made.coordinates.emplace_back(places.begin(), places.end());
            }
            new (self) CooTensor(std::move(made));
          },
          nb::arg("extents"), nb::arg("coordinates"), "coordinates: an int32 array for each axis, which are copied.")
      .def_ro("extents", &CooTensor::extents);
  m.def("csf_from_coo", &csf_from_coo, nb::arg("coo"), "A sparse axis for each dimension.");
  m.def("relations_from_coo", &relations_from_coo, nb::arg("coo"),
        "Elements (relation, row, column): below each relation rows that hold something, and columns.");
  m.def("relational_from_coo", &relational_from_coo, nb::arg("edges"), nb::arg("tile") = 64,
        "Edges (relation, row, column) as rgms takes them: tiles of rows, below each its relations, rows and columns.");
  nb::class_<Transposed>(m, "Transposed", "CSR of a transpose; order[p]: where the matrix holds what stands at p.")
      .def_ro("structure", &Transposed::structure)
      .def_ro("order", &Transposed::order);
  m.def("transposed", &transposed, nb::arg("a"));
  m.def("band", &band, nb::arg("num_blocks"), nb::arg("reach"), "Blocks within `reach` of the diagonal.");
  m.def("butterfly", &butterfly, nb::arg("num_blocks"), nb::arg("stride"));
}

// ---------------------------------------------------------------- programs

void define_programs(nb::module_& m) {
  nb::class_<Program>(m, "Program", "A program in the text form, with its schedule (docs/sparse.md).")
      .def(nb::init<std::string_view>(), nb::arg("text"),
           "Raises Error(invalid_argument) that names line and column of a mistake.")
      .def_prop_ro("text", &Program::text);
  m.def("parse", &parse, nb::arg("text"));
  nb::class_<IterationSpec>(m, "IterationSpec",
                            "An iteration, as: iterate NAME(AXES) \"KINDS\" as (ITERATORS) where CONDITIONS.")
      .def(
          "__init__",
          [](IterationSpec* self, std::string name, std::vector<std::string> axes, std::string kinds,
             std::vector<std::string> iterators, std::vector<std::string> where, std::vector<std::string> init,
             std::vector<std::string> body, bool preprocess, std::vector<IterationSpec> within) {
            new (self) IterationSpec{std::move(name),      std::move(axes),  std::move(kinds),
                                     std::move(iterators), std::move(where), std::move(init),
                                     std::move(body),      preprocess,       std::move(within)};
          },
          nb::kw_only(), nb::arg("name"), nb::arg("axes"), nb::arg("kinds"), nb::arg("iterators"),
          nb::arg("where") = nb::list(), nb::arg("init") = nb::list(), nb::arg("body") = nb::list(),
          nb::arg("preprocess") = false, nb::arg("within") = nb::list(),
          "kinds: an S (spatial) or R (reduction) for each axis. init and body: stores.");
  using Builder = ProgramBuilder;
  const auto self = nb::rv_policy::none;
  nb::class_<Builder>(
      m, "ProgramBuilder",
      "A program built call by call. Every call raises Error(invalid_argument) that names what breaks the "
      "language's rules, and then changes nothing.")
      .def(nb::init<const std::string&, const std::vector<std::string>&>(), nb::arg("name"), nb::arg("params"))
      .def("dense_fixed", &Builder::dense_fixed, self, nb::arg("name"), nb::arg("length"))
      .def("dense_variable", &Builder::dense_variable, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz"), nb::arg("indptr"), nb::arg("index_type") = DType::int32)
      .def("sparse_fixed", &Builder::sparse_fixed, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz_cols"), nb::arg("indices"), nb::arg("index_type") = DType::int32)
      .def("sparse_variable", &Builder::sparse_variable, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz"), nb::arg("indptr"), nb::arg("indices"), nb::arg("index_type") = DType::int32)
      .def("buffer", &Builder::buffer, self, nb::arg("name"), nb::arg("axes"), nb::arg("dtype") = DType::fp32)
      .def("temporary", &Builder::temporary, self, nb::arg("name"), nb::arg("axes"), nb::arg("dtype") = DType::fp32)
      .def("apart", &Builder::apart, self, nb::arg("axes"))
      .def("iterate", &Builder::iterate, self, nb::arg("iteration"))
      .def("schedule", &Builder::schedule, self, nb::arg("line"))
      .def_prop_ro("text", &Builder::text)
      .def("build", &Builder::build);
  nb::class_<Operator>(m, "Operator", "A compiled program. Thread-safe.")
      .def(
          "run",
          [](const Operator& op, const std::map<std::string, Structure>& structures, const Tensors& buffers,
             const std::map<std::string, int64_t>& scalars, const std::map<std::string, double>& reals,
             bool values_unchanged, const std::optional<PyStream>& stream) {
            Arguments call(stream_of(stream));
            RunArguments given{.structures = structures,
                               .buffers = {},
                               .scalars = scalars,
                               .reals = reals,
                               .values_unchanged = values_unchanged};
            // Which are written the program says; its own check refuses outputs that overlap with others.
            for (const auto& [name, array] : buffers.list) given.buffers[name] = call.of_program(name, array.object);
            call.run([&] { op.run(given, call.stream()); });
          },
          nb::arg("structures"), nb::arg("buffers"), nb::arg("scalars") = nb::dict(), nb::arg("reals") = nb::dict(),
          nb::kw_only(), nb::arg("values_unchanged") = false, nb::arg("stream") = nb::none(),
          "structures: by the axis that they end in. buffers: contiguous arrays by name, none of them read-only; those "
          "that the program stores into are written. scalars, reals: parameters that no structure and no shape tells.")
      .def("text", &Operator::text, nb::arg("stage"), "'stage1', 'stage2', 'stage3', 'code' or 'cuda'.")
      .def_prop_ro(
          "passes",
          [](const Operator& op) {
            std::vector<std::pair<std::string, double>> all;
            for (const PassTime& pass : op.passes()) all.push_back({pass.name, pass.milliseconds});
            return all;
          },
          "(name, milliseconds) of each.");
  m.def(
      "compile",
      [](const Program& program, const std::optional<std::string>& schedule, const DeviceLike& device,
         const std::map<std::string, int64_t>& set, const std::map<std::string, double>& set_reals,
         const std::string& stop_after, const std::vector<std::string>& skip, bool prove_bounds) {
        const CompileOptions options{set, set_reals, stop_after, skip, prove_bounds};
        const Device on = device_of(device);
        const WithoutGil free;
        return schedule ? compile(program, *schedule, on, options) : compile(program, on, options);
      },
      nb::arg("program"), nb::arg("schedule") = nb::none(), nb::arg("device") = "cpu", nb::kw_only(),
      nb::arg("set") = nb::dict(), nb::arg("set_reals") = nb::dict(), nb::arg("stop_after") = "",
      nb::arg("skip") = nb::list(), nb::arg("prove_bounds") = false,
      "With the program's own schedule, or with the lines of another one. `set`: parameters that are fixed.");
}

}  // namespace

void define_sparse(nb::module_& m) {
  nb::module_ all = m.def_submodule("sparse", "Sparse tensor programs and ready operators.");
  define_structures(all);
  define_programs(all);
  define_sparse_operators(all);
}

}  // namespace weft::python
