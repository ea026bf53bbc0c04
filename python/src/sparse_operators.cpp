// Ready operators of weft.sparse.
#include <fmt/ranges.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format_tensor.h"
#include "module.h"
#include "objects.h"
#include "sparse.h"
#include "weft/sparse.h"

namespace weft::python {
namespace {

using namespace sparse;
using OptionalStream = std::optional<PyStream>;
using OptionalArray = std::optional<ArrayLike>;

constexpr const char* kTensors =
    " All arrays are contiguous and of fp32, or all of bf16 with sums in fp32; the call runs where they lie, on the "
    "CPU "
    "or a card, there on `stream`. What is written shares memory with nothing else. Raises Error(invalid_shape | "
    "invalid_dtype | invalid_stride | invalid_device | invalid_argument | unsupported).";

// `out`, or an array like `like` of this shape.
nb::any output(const OptionalArray& out, const ArrayLike& like, const TensorView& form,
               std::initializer_list<int64_t> shape) {
  return out ? nb::borrow<nb::any>(out->object)
             : new_like(like.object, std::span<const int64_t>(shape.begin(), shape.size()), form.dtype(),
                        form.device());
}

// The shapes of a call's arrays: an extent has one value wherever its name stands.
class Shapes {
 public:
  explicit Shapes(std::map<std::string, int64_t> known) : extents_(std::move(known)) {}
  explicit Shapes(const Structure& a)
      : extents_({{"m", a.num_rows()}, {"n", a.num_cols()}, {"nnz", a.nnz()}, {"nnzb", a.nnz()}}) {}

  // Throws Error(invalid_shape | invalid_stride) for an array that is not of these extents, or has gaps.
  void check_array(const char* name, const TensorView& array, const std::vector<std::string>& form) {
    const std::string required = fmt::format("[{}]", fmt::join(form, ", "));
    check(array.rank() == static_cast<int>(form.size()), ErrorCode::invalid_shape, "{}: has shape {}; required is {}",
          name, array, required);
    for (size_t axis = 0; axis < form.size(); ++axis) {
      const int64_t extent = array.shape(static_cast<int>(axis));
      const int64_t expected = extents_.try_emplace(form[axis], extent).first->second;
      check(extent == expected, ErrorCode::invalid_shape, "{}: has shape {}; required is {} with {} = {}", name, array,
            required, form[axis], expected);
    }
    check_contiguous(name, array);
  }

 private:
  std::map<std::string, int64_t> extents_;
};

void define_products(nb::module_& m) {
  m.def(
      "spmm",
      [](const Structure& a, const ArrayLike& values, const ArrayLike& b, const OptionalArray& out,
         const std::string& format, bool values_unchanged, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_a = call.read("values", values), of_b = call.read("b", b);
        Shapes shapes(a);
        shapes.check_array("values", of_a, {"nnz"});
        shapes.check_array("b", of_b, {"n", "feat"});
        const nb::any made = output(out, b, of_b, {a.num_rows(), of_b.shape(1)});
        const TensorView c = call.write("out", made);
        shapes.check_array("out", c, {"m", "feat"});
        call.check_apart();
        call.run([&] { spmm(a, of_a, of_b, c, {format, values_unchanged}, call.stream()); });
        return made;
      },
      nb::arg("a"), nb::arg("values"), nb::arg("b"), nb::arg("out") = nb::none(), nb::kw_only(),
      nb::arg("format") = "auto", nb::arg("values_unchanged") = false, nb::arg("stream") = nb::none(),
      (std::string("out = a b: a [m, n] of that structure with values [nnz], b [n, feat]. Returns out [m, feat]. "
                   "`format`: 'csr', or formats that a is decomposed to, as 'hyb(1, 5)' or 'bsr(4), coo()'; 'auto': "
                   "what tune_spmm has found, else what row lengths promise. values_unchanged: they are those of the "
                   "last call in this format, and are not copied into it again.") +
       kTensors)
          .c_str());
  m.def(
      "sddmm",
      [](const Structure& a, const ArrayLike& values, const ArrayLike& x, const ArrayLike& y, const OptionalArray& out,
         const std::string& format, bool values_unchanged, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_a = call.read("values", values), rows = call.read("x", x), cols = call.read("y", y);
        const nb::any made = output(out, values, of_a, {a.nnz()});
        const TensorView to = call.write("out", made);
        Shapes shapes(a);
        shapes.check_array("values", of_a, {"nnz"});
        shapes.check_array("x", rows, {"m", "feat"});
        shapes.check_array("y", cols, {"n", "feat"});
        shapes.check_array("out", to, {"nnz"});
        call.check_apart();
        call.run([&] { sddmm(a, of_a, rows, cols, to, {format, values_unchanged}, call.stream()); });
        return made;
      },
      nb::arg("a"), nb::arg("values"), nb::arg("x"), nb::arg("y"), nb::arg("out") = nb::none(), nb::kw_only(),
      nb::arg("format") = "auto", nb::arg("values_unchanged") = false, nb::arg("stream") = nb::none(),
      (std::string("out[p] = values[p] * dot(x[i], y[j]) for every stored (i, j): values [nnz], x [m, feat], y [n, "
                   "feat]. Returns out [nnz]. `format`, values_unchanged: as spmm's.") +
       kTensors)
          .c_str());
  m.def(
      "graph_attention",
      [](const Structure& graph, const ArrayLike& q, const ArrayLike& k, const ArrayLike& v, float scale,
         const OptionalArray& out, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_q = call.read("q", q), of_k = call.read("k", k), of_v = call.read("v", v);
        Shapes shapes(graph);
        shapes.check_array("q", of_q, {"m", "feat"});
        shapes.check_array("k", of_k, {"n", "feat"});
        shapes.check_array("v", of_v, {"n", "feat_v"});
        const nb::any made = output(out, q, of_q, {graph.num_rows(), of_v.shape(1)});
        const TensorView to = call.write("out", made);
        shapes.check_array("out", to, {"m", "feat_v"});
        call.check_apart();
        call.run([&] { graph_attention(graph, of_q, of_k, of_v, to, scale, call.stream()); });
        return made;
      },
      nb::arg("graph"), nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("scale") = 1.f, nb::arg("out") = nb::none(),
      nb::kw_only(), nb::arg("stream") = nb::none(),
      (std::string("out[i] = sum over stored (i, j) of softmax(scale * dot(q[i], k[j])) v[j]; 0 where a row stores "
                   "nothing. q [m, feat], k [n, feat], v [n, feat_v]. Returns out [m, feat_v].") +
       kTensors)
          .c_str());
  m.def(
      "fused_mm",
      [](const Structure& graph, const ArrayLike& x, const ArrayLike& y, const OptionalArray& out,
         const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_x = call.read("x", x), of_y = call.read("y", y);
        Shapes shapes(graph);
        shapes.check_array("x", of_x, {"m", "feat"});
        shapes.check_array("y", of_y, {"n", "feat"});
        const nb::any made = output(out, x, of_x, {graph.num_rows(), of_y.shape(1)});
        const TensorView to = call.write("out", made);
        shapes.check_array("out", to, {"m", "feat"});
        call.check_apart();
        call.run([&] { fused_mm(graph, of_x, of_y, to, call.stream()); });
        return made;
      },
      nb::arg("graph"), nb::arg("x"), nb::arg("y"), nb::arg("out") = nb::none(), nb::kw_only(),
      nb::arg("stream") = nb::none(),
      (std::string("out[i] = sum over stored (i, j) of sigmoid(dot(x[i], y[j])) y[j] (FusedMM); no score is stored. "
                   "x [m, feat], y [n, feat]. Returns out [m, feat].") +
       kTensors)
          .c_str());
}

// Shapes of a product's arrays. In blocks, rows and columns of the matrix are the structure's times `block`.
struct Forms {
  std::vector<std::string> first, second, out;
};

void check_forms(const Structure& a, const Forms& forms, const std::array<const char*, 3>& names,
                 const std::array<TensorView, 3>& arrays) {
  const std::array<const std::vector<std::string>*, 3> each = {&forms.first, &forms.second, &forms.out};
  std::map<std::string, int64_t> known = {{"nnz", a.nnz()}, {"nnzb", a.nnz()}};
  int64_t block = 1;
  bool has_heads = true;
  for (size_t i = 0; i < each.size(); ++i) {
    const bool in_blocks = !each[i]->empty() && each[i]->back() == "block";
    if (!in_blocks || arrays[i].rank() == 0) continue;
    block = arrays[i].shape(arrays[i].rank() - 1);
    has_heads = arrays[i].rank() != static_cast<int>(each[i]->size()) - 1;
  }
  known["m"] = a.num_rows() * block;
  known["n"] = a.num_cols() * block;
  Shapes shapes(std::move(known));
  for (size_t i = 0; i < each.size(); ++i)
    shapes.check_array(names[i], arrays[i], {each[i]->begin() + (has_heads ? 0 : 1), each[i]->end()});
}

// Products whose results are given: each has a shape of its own. No forms: who computes checks all of them.
void define_blocks(nb::module_& m) {
  using Product = void (*)(const Structure&, const TensorView&, const TensorView&, const TensorView&, Stream);
  const auto define = [&](const char* name, const char* first, const char* second, const Forms& forms, const char* doc,
                          Product product) {
    m.def(
        name,
        [product, first, second, forms](const Structure& a, const ArrayLike& x, const ArrayLike& y,
                                        const ArrayLike& out, const OptionalStream& stream) {
          Arguments call(stream_of(stream));
          const TensorView of_x = call.read(first, x), of_y = call.read(second, y), to = call.write("out", out.object);
          if (!forms.out.empty()) check_forms(a, forms, {first, second, "out"}, {of_x, of_y, to});
          call.check_apart();
          call.run([&] { product(a, of_x, of_y, to, call.stream()); });
          return nb::borrow<nb::any>(out.object);
        },
        nb::arg("a"), nb::arg(first), nb::arg(second), nb::arg("out"), nb::kw_only(), nb::arg("stream") = nb::none(),
        (std::string(doc) + " Writes and returns out." + kTensors).c_str());
  };
  const std::vector<std::string> rows = {"heads", "m", "feat"}, cols = {"heads", "n", "feat"};
  const std::vector<std::string> blocks = {"heads", "nnzb", "block", "block"};
  define("batched_spmm", "values", "b", {{"heads", "nnz"}, cols, rows},
         "out = a b, one structure for all heads: values [heads, nnz], b [heads, n, feat], out [heads, m, feat].",
         &batched_spmm);
  define("batched_sddmm", "x", "y", {rows, cols, {"heads", "nnz"}},
         "Dot products of rows of x and y for every stored (i, j), one structure for all heads: x [heads, m, feat], y "
         "[heads, n, feat], out [heads, nnz].",
         &batched_sddmm);
  define("block_spmm", "values", "b", {blocks, cols, rows},
         "out = a b in blocks: a is CSR of block rows and columns (bsr_from_coo, matrix, band, butterfly), values "
         "[heads, nnzb, block, block], b [heads, n, feat], out [heads, m, feat]; m and n are whole blocks. Without "
         "heads, one rank less everywhere.",
         &block_spmm);
  define("block_sddmm", "x", "y", {rows, cols, blocks},
         "The stored blocks of x y^T: x [heads, m, feat], y [heads, n, feat], out [heads, nnzb, block, block]. Without "
         "heads, one rank less everywhere.",
         &block_sddmm);
  define("dbsr_spmm", "values", "b", {},
         "out = a b of the structure that dbsr_from_coo makes: values [nnzb, block, block], b [n, feat], out of whole "
         "block rows.",
         &dbsr_spmm);
  define("sr_bcrs_spmm", "values", "b", {},
         "out = a b of the structure that sr_bcrs_from_coo makes: values [groups, g, t], b [n, feat], out of whole "
         "strips.",
         &sr_bcrs_spmm);
}

void define_relations(nb::module_& m) {
  m.def(
      "rgms",
      [](const Structure& edges, const OptionalArray& values, const ArrayLike& x, const ArrayLike& w,
         const ArrayLike& out, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView weights = call.read("values", values), of_x = call.read("x", x), of_w = call.read("w", w),
                         to = call.write("out", out.object);
        call.check_apart();
        call.run([&] { rgms(edges, weights, of_x, of_w, to, call.stream()); });
        return nb::borrow<nb::any>(out.object);
      },
      nb::arg("edges"), nb::arg("values").none(), nb::arg("x"), nb::arg("w"), nb::arg("out"), nb::kw_only(),
      nb::arg("stream") = nb::none(),
      (std::string(
           "out[i] = sum over edges (r, i, j) of values * x[j] w[r], edges as relational_from_coo makes them: x "
           "[n, feat_in], w [relations, feat_in, feat_out], out [m, feat_out], values [nnz] in the structure's "
           "order, or None, which are ones. Writes and returns out.") +
       kTensors)
          .c_str());
  nb::class_<KernelMap>(m, "KernelMap",
                        "Which inputs a convolution over voxels meets: an output at u the input at u * stride + offset "
                        "- (kernel - 1) / 2, offsets counted with the last dimension innermost.")
      .def_ro("outputs", &KernelMap::outputs, "Places of outputs.")
      .def_ro("edges", &KernelMap::edges, "(offset, output, input) of each pair.")
      .def_ro("structure", &KernelMap::structure, "Of the edges, as rgms takes it.");
  m.def(
      "kernel_map",
      [](const std::vector<std::array<int32_t, 3>>& coordinates, std::array<int32_t, 3> kernel,
         std::array<int32_t, 3> stride) {
        const WithoutGil free;
        return kernel_map(coordinates, kernel, stride);
      },
      nb::arg("coordinates"), nb::arg("kernel") = std::array<int32_t, 3>{3, 3, 3},
      nb::arg("stride") = std::array<int32_t, 3>{1, 1, 1},
      "Of voxels at these coordinates. With stride 1 outputs are the inputs; else the inputs' places divided by the "
      "stride, each once, sorted. Raises Error(invalid_argument) for a voxel that stands twice, or a kernel or stride "
      "beyond 1 to 15.");
  m.def(
      "sparse_convolution",
      [](const KernelMap& map, const ArrayLike& x, const ArrayLike& w, const ArrayLike& out,
         const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_x = call.read("x", x), of_w = call.read("w", w), to = call.write("out", out.object);
        call.check_apart();
        call.run([&] { sparse_convolution(map, of_x, of_w, to, call.stream()); });
        return nb::borrow<nb::any>(out.object);
      },
      nb::arg("map"), nb::arg("x"), nb::arg("w"), nb::arg("out"), nb::kw_only(), nb::arg("stream") = nb::none(),
      (std::string("x [inputs, feat_in], w [offsets, feat_in, feat_out], out [outputs, feat_out]. Writes and returns "
                   "out.") +
       kTensors)
          .c_str());
}

// The parameters that every search has, behind its own.
template <class Function, class... Names>
void define_search(nb::module_& m, const char* name, Function search, const std::string& doc, const Names&... names) {
  m.def(
      name, search, names..., nb::kw_only(), nb::arg("seconds") = 45.0, nb::arg("values_unchanged") = false,
      nb::arg("stream") = nb::none(),
      (doc + " Measures on `stream` for so many seconds, with ones for tensors: calls over the structure take the "
             "fastest from then on, "
             "in later processes, too; what is left, another call goes on with. values_unchanged: for calls with that "
             "promise. Raises Error(invalid_argument | invalid_device | unsupported).")
          .c_str());
}

void define_tuning(nb::module_& m) {
  nb::class_<Tuned>(m, "Tuned", "What a search has found.")
      .def_ro("choice", &Tuned::choice, "The fastest.")
      .def_ro("likely_choice", &Tuned::likely_choice, "What runs without a search.")
      .def_ro("seconds", &Tuned::seconds, "Of a call of the fastest.")
      .def_ro("likely_seconds", &Tuned::likely_seconds, "Of a call without a search.")
      .def_ro("num_tried", &Tuned::num_tried, "By this search.")
      .def_ro("num_left", &Tuned::num_left, "Of all candidates.");
  nb::class_<TunedRgms, Tuned>(m, "TunedRgms", "What a search over a list of edges has found.")
      .def_ro("tile", &TunedRgms::tile,
              "relational_from_coo(edges, tile) makes the structure that the fastest calls take.");
  using Tune = Tuned (*)(const Structure&, int64_t, const TuneOptions&, Stream);
  const auto formats = [](Tune tune) {
    return
        [tune](const Structure& a, int64_t feat, double seconds, bool values_unchanged, const OptionalStream& stream) {
          const WithoutGil free;
          return tune(a, feat, {seconds, values_unchanged}, stream_of(stream));
        };
  };
  const nb::arg a("a"), feat("feat"), feat_in("feat_in"), feat_out("feat_out");
  define_search(m, "tune_spmm", formats(&tune_spmm),
                "Searches formats and schedules of spmm in fp32 over rows of `feat` features.", a, feat);
  define_search(m, "tune_sddmm", formats(&tune_sddmm),
                "Searches formats and schedules of sddmm in fp32 over rows of `feat` features.", a, feat);
  define_search(
      m, "tune_block_spmm",
      [](const Structure& blocks, int64_t heads, int64_t block, int64_t features, DType dtype, double seconds,
         bool values_unchanged, const OptionalStream& stream) {
        const WithoutGil free;
        return tune_block_spmm(blocks, heads, block, features, dtype, {seconds, values_unchanged}, stream_of(stream));
      },
      "Searches schedules of block_spmm: rows in registers, dot products or widening. Without heads: 1 of them.",
      nb::arg("blocks"), nb::arg("heads"), nb::arg("block"), feat, nb::arg("dtype"));
  define_search(
      m, "tune_rgms",
      [](const Structure& edges, int64_t from, int64_t to, double seconds, bool values_unchanged,
         const OptionalStream& stream) {
        const WithoutGil free;
        return tune_rgms(edges, from, to, {seconds, values_unchanged}, stream_of(stream));
      },
      "Searches schedules of rgms in fp32 without values, over a structure that relational_from_coo has made.",
      nb::arg("edges"), feat_in, feat_out);
  define_search(
      m, "tune_rgms",
      [](const CooTensor& edges, int64_t from, int64_t to, double seconds, bool values_unchanged,
         const OptionalStream& stream) {
        const WithoutGil free;
        return tune_rgms(edges, from, to, {seconds, values_unchanged}, stream_of(stream));
      },
      "Of a list of edges (relation, row, column): also how many rows stand in a tile, 16 to 256.", nb::arg("edges"),
      feat_in, feat_out);
}

void define_gradients(nb::module_& m) {
  m.def(
      "spmm_backward",
      [](const Structure& a, const Transposed& a_transposed, const ArrayLike& values, const ArrayLike& b,
         const ArrayLike& d_c, const OptionalArray& d_values, const OptionalArray& d_b, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_a = call.read("values", values), of_b = call.read("b", b), from = call.read("d_c", d_c);
        SpmmGradients to;
        if (d_values) to.values = call.write("d_values", d_values->object);
        if (d_b) to.b = call.write("d_b", d_b->object);
        Shapes shapes(a);
        shapes.check_array("values", of_a, {"nnz"});
        shapes.check_array("b", of_b, {"n", "feat"});
        shapes.check_array("d_c", from, {"m", "feat"});
        if (d_values) shapes.check_array("d_values", to.values, {"nnz"});
        if (d_b) shapes.check_array("d_b", to.b, {"n", "feat"});
        call.check_apart();
        call.run([&] { spmm_backward(a, a_transposed, of_a, of_b, from, to, call.stream()); });
      },
      nb::arg("a"), nb::arg("a_transposed"), nb::arg("values"), nb::arg("b"), nb::arg("d_c"),
      nb::arg("d_values") = nb::none(), nb::arg("d_b") = nb::none(), nb::kw_only(), nb::arg("stream") = nb::none(),
      "Gradients of c = a b in fp32, from d_c [m, feat]: writes those that are given, d_values [nnz] and d_b [n, "
      "feat]. "
      "a_transposed: transposed(a). Raises as spmm.");
  m.def(
      "sddmm_backward",
      [](const Structure& a, const Transposed& a_transposed, const ArrayLike& values, const ArrayLike& x,
         const ArrayLike& y, const ArrayLike& d_out, const OptionalArray& d_values, const OptionalArray& d_x,
         const OptionalArray& d_y, const OptionalStream& stream) {
        Arguments call(stream_of(stream));
        const TensorView of_a = call.read("values", values), of_x = call.read("x", x), of_y = call.read("y", y),
                         from = call.read("d_out", d_out);
        SddmmGradients to;
        if (d_values) to.values = call.write("d_values", d_values->object);
        if (d_x) to.x = call.write("d_x", d_x->object);
        if (d_y) to.y = call.write("d_y", d_y->object);
        Shapes shapes(a);
        shapes.check_array("values", of_a, {"nnz"});
        shapes.check_array("x", of_x, {"m", "feat"});
        shapes.check_array("y", of_y, {"n", "feat"});
        shapes.check_array("d_out", from, {"nnz"});
        if (d_values) shapes.check_array("d_values", to.values, {"nnz"});
        if (d_x) shapes.check_array("d_x", to.x, {"m", "feat"});
        if (d_y) shapes.check_array("d_y", to.y, {"n", "feat"});
        call.check_apart();
        call.run([&] { sddmm_backward(a, a_transposed, of_a, of_x, of_y, from, to, call.stream()); });
      },
      nb::arg("a"), nb::arg("a_transposed"), nb::arg("values"), nb::arg("x"), nb::arg("y"), nb::arg("d_out"),
      nb::arg("d_values") = nb::none(), nb::arg("d_x") = nb::none(), nb::arg("d_y") = nb::none(), nb::kw_only(),
      nb::arg("stream") = nb::none(),
      "Gradients of sddmm's out in fp32, from d_out [nnz]: writes those that are given, d_values [nnz], d_x [m, feat] "
      "and d_y [n, feat]. a_transposed: transposed(a). Raises as sddmm.");
}

}  // namespace

void define_sparse_operators(nb::module_& m) {
  define_products(m);
  define_blocks(m);
  define_relations(m);
  define_tuning(m);
  define_gradients(m);
}

}  // namespace weft::python
