// weft.sparse: programs and their operators (weft/sparse.h, weft/sparse_program.h).
#include "weft/sparse.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <map>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "module.h"
#include "objects.h"
#include "sparse.h"
#include "sparse/bind.h"
#include "sparse/operator.h"
#include "struct.h"
#include "weft/sparse_program.h"

namespace weft {

template <>
struct Fields<sparse::IterationSpec> {
  using Spec = sparse::IterationSpec;
  static constexpr auto list =
      field_list(Field{"name", &Spec::name}, Field{"axes", &Spec::axes}, Field{"kinds", &Spec::kinds},
                 Field{"iterators", &Spec::iterators}, Field{"where", &Spec::where}, Field{"init", &Spec::init},
                 Field{"body", &Spec::body}, Field{"preprocess", &Spec::preprocess}, Field{"within", &Spec::within});
};

template <>
struct Fields<sparse::FormatSpec> {
  using Spec = sparse::FormatSpec;
  static constexpr auto list =
      field_list(Field{"name", &Spec::name}, Field{"old_axes", &Spec::old_axes}, Field{"params", &Spec::params},
                 Field{"axes", &Spec::axes}, Field{"buffer_axes", &Spec::buffer_axes}, Field{"to", &Spec::to},
                 Field{"from_", &Spec::from});
};

}  // namespace weft

namespace weft::python {
namespace {

using namespace sparse;

void define_programs(nb::module_& m) {
  nb::class_<Program>(m, "Program", "A program in the text form, with its schedule (docs/sparse.md).")
      .def(nb::init<std::string_view>(), nb::arg("text"),
           "Raises Error(invalid_argument) that names line and column of a mistake.")
      .def_prop_ro("text", &Program::text);
  m.def("parse", &parse, nb::arg("text"), "Program(text).");
  bind_struct<IterationSpec>(
      m, "IterationSpec",
      "An iteration, as: iterate NAME(AXES) \"KINDS\" as (ITERATORS) where CONDITIONS. axes: 'I'; 'fuse(I, J)' is one "
      "loop over both. kinds: an S (spatial) or R (reduction) for each axis. init: stores, once for each spatial "
      "point; "
      "body: stores. preprocess: it runs once for new values. within: iterations instead of a body, which run at each "
      "point of this one, in order.");
  bind_struct<FormatSpec>(
      m, "FormatSpec",
      "A format of one's own: how rows and columns of a matrix are stored. old_axes: what it calls rows and columns. "
      "params: what the structure tells. axes: 'IO = dense_fixed((m + 1) // 2)', ... buffer_axes: of the values, in "
      "order. to: 'IO = I // 2', ...; from_: 'I = IO * 2 + II', ..., its inverse.");
  using Builder = ProgramBuilder;
  const auto self = nb::rv_policy::none;
  nb::class_<Builder>(
      m, "ProgramBuilder",
      "A program built call by call, in the order of its declarations: whatever the text form can say. Each call "
      "returns "
      "the builder; it raises Error(invalid_argument) that names what breaks the language's rules, and then changes "
      "nothing. Not safe to use from two threads.")
      .def(nb::init<const std::string&, const std::vector<std::string>&>(), nb::arg("name"), nb::arg("params"),
           "params: integers of 0 and more, 'n', or real ones, 'alpha: real'.")
      .def("dense_fixed", &Builder::dense_fixed, self, nb::arg("name"), nb::arg("length"),
           "An axis of all coordinates below `length`, an integer expression of the parameters as '(m + 3) // 4'.")
      .def("dense_variable", &Builder::dense_variable, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz"), nb::arg("indptr"), nb::arg("index_type") = DType::int32,
           "Below each position of `parent` the first coordinates, as many as the array named indptr says, `nnz` in "
           "all. index_type: of the axis' arrays, int32 or int64.")
      .def("sparse_fixed", &Builder::sparse_fixed, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz_cols"), nb::arg("indices"), nb::arg("index_type") = DType::int32,
           "Below each position of `parent` nnz_cols coordinates, which the array named `indices` holds.")
      .def("sparse_variable", &Builder::sparse_variable, self, nb::arg("name"), nb::arg("parent"), nb::arg("length"),
           nb::arg("nnz"), nb::arg("indptr"), nb::arg("indices"), nb::arg("index_type") = DType::int32,
           "Below each position of `parent` as many coordinates as indptr says, `nnz` in all, which `indices` holds.")
      .def("buffer", &Builder::buffer, self, nb::arg("name"), nb::arg("axes"), nb::arg("dtype") = DType::fp32,
           "Values on axes: fp32, fp16, bf16, fp64, int32 or int64.")
      .def("temporary", &Builder::temporary, self, nb::arg("name"), nb::arg("axes"), nb::arg("dtype") = DType::fp32,
           "A buffer of the program's own: nobody gives it.")
      .def("apart", &Builder::apart, self, nb::arg("axes"), "No coordinate is stored on two of these sparse axes.")
      .def("iterate", &Builder::iterate, self, nb::arg("iteration"), "What is computed, after all axes and buffers.")
      .def("format", &Builder::format, self, nb::arg("format"),
           "A format of one's own, after all iterations; schedule('decompose_format(iteration, A, NAME())') stores A "
           "so.")
      .def("schedule", &Builder::schedule, self, nb::arg("line"),
           "A line, as 'ko, ki = split(csrmm.k, 16)'. Whether it is legal is known when the program is compiled.")
      .def_prop_ro("text", &Builder::text, "In the text form.")
      .def("build", &Builder::build, "Raises Error(invalid_argument) where nothing is computed yet.");
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
            // The program's own check refuses outputs that overlap with others.
            for (const auto& [name, array] : buffers.list)
              given.buffers[name] = call.of_program(name, array.object, writes(op.impl().made.stage1, name));
            call.run([&] { op.run(given, call.stream()); });
          },
          nb::arg("structures"), nb::arg("buffers"), nb::arg("scalars") = nb::dict(), nb::arg("reals") = nb::dict(),
          nb::kw_only(), nb::arg("values_unchanged") = false, nb::arg("stream") = nb::none(),
          "structures: by the axis that they end in. buffers: contiguous arrays by name, on the operator's device; "
          "those "
          "that the program stores into are written. scalars, reals: parameters that no structure and no shape tells. "
          "values_unchanged: those of decomposed buffers are the ones of the last run, and are not copied again. "
          "Raises "
          "Error(invalid_argument | invalid_dtype | invalid_shape | invalid_stride | invalid_device) before anything "
          "is "
          "computed, and Error(invalid_argument) after all is computed for a program that wrote where nothing is "
          "stored, "
          "or divided an integer by 0; on a card stream.synchronize() raises that.")
      .def("text", &Operator::text, nb::arg("stage"),
           "'stage1', 'stage2', 'stage3', 'code' or 'cuda'. Raises Error(invalid_argument).")
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
      "With the program's own schedule, or with the lines of another one. set, set_reals: parameters that are fixed, "
      "which makes faster code. stop_after: a pass; then only what was made so far can be shown. skip: passes that "
      "only "
      "make code faster or explain it. prove_bounds: refuse a program with an access that is not proven to lie inside. "
      "Raises Error(invalid_argument) naming the line of a schedule that is not legal, Error(unsupported) for what has "
      "no meaning on a card, and what the compiler of the code raises.");
}

}  // namespace

void define_sparse(nb::module_& m) {
  nb::module_ all = m.def_submodule("sparse", "Sparse tensor programs and ready operators.");
  define_sparse_structures(all);
  define_sparse_files(all);
  define_programs(all);
  define_sparse_operators(all);
}

}  // namespace weft::python
