// weft.build, weft.AttentionKernel, weft.KvCache, weft.attend, and merges of states.
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format_tensor.h"
#include "module.h"
#include "plans.h"

namespace weft::python {
namespace {

// What run and attend take but for where they run.
struct CallOf {
  const AttentionSpec& spec;
  const ArrayLike& q;
  const PyKvCache& kv;
  std::optional<ArrayLike> out, lse;
  bool return_lse;
  std::optional<float> sm_scale;
  const std::optional<Scalars>& scalars;
  const std::optional<Tensors>& tensors;
};

// Views of a call's arrays, and the objects that it returns.
struct Prepared {
  AttentionTensors tensors = {};
  nb::any out = {}, lse = {};
  nb::any result() const { return lse.is_valid() ? nb::borrow<nb::any>(nb::make_tuple(out, lse)) : out; }
};

KvCache cache_of(Arguments& call, const PyKvCache& kv, bool latent) {
  const TensorView k = call.read(latent ? "ckv" : "k", kv.k);
  if (!kv.v && !latent) {
    KvCache both(k);
    both.k_scale = call.read("k_scale", kv.k_scale);
    both.v_scale = call.read("v_scale", kv.v_scale);
    return both;
  }
  return {k, call.read(latent ? "kpe" : "v", kv.v), call.read("k_scale", kv.k_scale), call.read("v_scale", kv.v_scale)};
}

Prepared prepare(Arguments& call, const CallOf& of) {
  Prepared made;
  AttentionTensors& all = made.tensors;
  all.q = call.read("q", of.q);
  all.kv = cache_of(call, of.kv, of.spec.kv_form == KvForm::latent);
  all.sm_scale = of.sm_scale;
  if (of.scalars) all.scalars = of.scalars->list;
  if (of.tensors)
    for (const auto& [name, array] : of.tensors->list) all.tensors.push_back({name, call.read(name, array)});
  check(all.q.rank() == 3, ErrorCode::invalid_shape,
        "q: {} has rank {}; required is [nnz_qo, num_qo_heads, head_dim_qk]", all.q, all.q.rank());
  const std::array<int64_t, 3> shape{all.q.shape(0), all.q.shape(1), of.spec.head_dim_vo};
  made.out =
      of.out ? nb::borrow<nb::any>(of.out->object) : new_like(of.q.object, shape, of.spec.o_dtype, all.q.device());
  all.o = call.write("out", made.out);
  if (of.lse || of.return_lse) {
    made.lse = of.lse ? nb::borrow<nb::any>(of.lse->object)
                      : new_like(of.q.object, std::span(shape).first(2), DType::fp32, all.q.device());
    all.lse = call.write("lse", made.lse);
  }
  call.check_apart();
  return made;
}

nb::any run_workspace(const AttentionKernel& kernel, PyWorkspace& workspace, const ArrayLike& q, const KvLike& kv,
                      std::optional<ArrayLike> out, std::optional<ArrayLike> lse, bool return_lse,
                      std::optional<float> sm_scale, const std::optional<Scalars>& scalars,
                      const std::optional<Tensors>& tensors, const std::optional<PyStream>& stream) {
  Arguments call(stream_of(stream));
  const Prepared made = prepare(
      call, {kernel.spec(), q, kv.cache, std::move(out), std::move(lse), return_lse, sm_scale, scalars, tensors});
  Workspace& plan = call.workspace(workspace);
  call.run([&] { kernel.run(plan, made.tensors, call.stream()); });
  return made.result();
}

nb::any run_plan(const AttentionKernel& kernel, PyPlan& plan, const ArrayLike& q, const KvLike& kv,
                 std::optional<ArrayLike> out, std::optional<ArrayLike> lse, bool return_lse,
                 std::optional<float> sm_scale, const std::optional<Scalars>& scalars,
                 const std::optional<Tensors>& tensors, const std::optional<PyStream>& stream) {
  Arguments call(stream_of(stream));
  const Prepared made = prepare(
      call, {kernel.spec(), q, kv.cache, std::move(out), std::move(lse), return_lse, sm_scale, scalars, tensors});
  call.hold(plan.mutex);
  const Device device = made.tensors.q.device().kind == DeviceKind::cuda ? made.tensors.q.device() : Device::cpu();
  std::unique_ptr<PyWorkspace>& own = plan.own_workspace;
  const size_t bytes = plan.plan.workspace_bytes();
  if (own == nullptr || own->workspace.bytes() < bytes || own->workspace.device() != device) {
    own = std::make_unique<PyWorkspace>(device, bytes);
    plan.uploaded = false;
  }
  plan.uploaded = plan.uploaded && plan.uploaded_on == call.stream().handle();
  if (!plan.uploaded) check_borrowed(plan);
  call.run([&] {
    if (!plan.uploaded) plan.plan.upload(own->workspace, call.stream());
    plan.uploaded = true;
    plan.uploaded_on = call.stream().handle();
    kernel.run(own->workspace, made.tensors, call.stream());
  });
  return made.result();
}

constexpr const char* kRunDoc =
    "Runs a plan: q [nnz_qo, num_qo_heads, head_dim_qk], `kv` as the spec's kv_form says, out [nnz_qo, num_qo_heads, "
    "head_dim_vo] and lse fp32 [nnz_qo, num_qo_heads], which are made like q where they are not given. Returns out, or "
    "(out, lse) with return_lse or a given lse. sm_scale: default 1 / sqrt(head_dim_qk). `scalars` and `tensors`: of "
    "the "
    "variant, by name; a custom mask is {'mask': mask}. lse is the natural logarithm of the sum of exponentials; an "
    "empty row has out = 0 and lse = -inf. Raises Error(plan_mismatch | invalid_shape | invalid_stride | invalid_dtype "
    "| invalid_device | invalid_argument) before memory is touched.";

template <class Class, class Run, class First>
void define_run(Class& cls, const Run& run, const First& first) {
  cls.def("run", run, first, nb::arg("q"), nb::arg("kv"), nb::arg("out") = nb::none(), nb::arg("lse") = nb::none(),
          nb::kw_only(), nb::arg("return_lse") = false, nb::arg("sm_scale") = nb::none(),
          nb::arg("scalars") = nb::none(), nb::arg("tensors") = nb::none(), nb::arg("stream") = nb::none(), kRunDoc);
}

void define_cache(nb::module_& m) {
  nb::class_<PyKvCache>(m, "KvCache",
                        "Keys and values: a pair, or one 5-D array [pages, 2, ...] of the paged form; with the scales "
                        "of a quantised cache. The arrays are looked at by each call that takes it.")
      .def(
          "__init__",
          [](PyKvCache* self, ArrayLike k, std::optional<ArrayLike> v, std::optional<ArrayLike> k_scale,
             std::optional<ArrayLike> v_scale) {
            new (self) PyKvCache{std::move(k), std::move(v), std::move(k_scale), std::move(v_scale)};
          },
          nb::arg("k"), nb::arg("v") = nb::none(), nb::arg("k_scale") = nb::none(), nb::arg("v_scale") = nb::none())
      .def_static(
          "latent",
          [](ArrayLike ckv, std::optional<ArrayLike> kpe) {
            return PyKvCache{std::move(ckv), std::move(kpe), {}, {}};
          },
          nb::arg("ckv"), nb::arg("kpe") = nb::none(), "Of KvForm.latent: a pair, or one array of both.")
      .def_ro("k", &PyKvCache::k)
      .def_ro("v", &PyKvCache::v)
      .def_ro("k_scale", &PyKvCache::k_scale)
      .def_ro("v_scale", &PyKvCache::v_scale);
}

void define_kernel(nb::module_& m) {
  nb::class_<AttentionKernel> kernel(m, "AttentionKernel",
                                     "A compiled kernel, made by weft.build; safe to use from several threads.");
  kernel.def_prop_ro(
      "spec", [](const AttentionKernel& self) -> const AttentionSpec& { return self.spec(); }, nb::rv_policy::copy);
  define_with_input(kernel, "plan",
                    "A plan for these lengths, once a step. Raises Error(invalid_argument | invalid_indptr | "
                    "invalid_page | invalid_shape | unsupported).",
                    [](AttentionKernel& self, const PyPlanInput& input) { return make_plan(self, input); });
  kernel.def("workspace_bytes", &AttentionKernel::workspace_bytes, nb::arg("bounds"),
             "Bytes that every plan within these bounds fits into.");
  define_run(kernel, &run_workspace, nb::arg("workspace"));
  define_run(kernel, &run_plan, nb::arg("plan"));
  kernel.def(
      "plan_on_device",
      [](const AttentionKernel& self, PyWorkspace& workspace, const PlanBounds& bounds, const ArrayLike& kv_len,
         const ArrayLike& page_table, int64_t num_pages, int qo_len, int num_workers, const Scalars& scalars,
         const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const DeviceBatch batch{call.read("kv_len", kv_len),
                                call.read("page_table", page_table),
                                num_pages,
                                qo_len,
                                num_workers,
                                scalars.list};
        Workspace& to = call.workspace(workspace);
        call.run([&] { self.plan_on_device(batch, bounds, to, call.stream()); });
      },
      nb::arg("workspace"), nb::arg("bounds"), nb::kw_only(), nb::arg("kv_len"), nb::arg("page_table"),
      nb::arg("num_pages"), nb::arg("qo_len") = 1, nb::arg("num_workers") = 0, nb::arg("scalars") = nb::dict(),
      nb::arg("stream") = nb::none(),
      "The plan that `plan` with PlanMode.even and the same bounds would upload, made by the device from lengths "
      "that only it knows: kv_len int32 [batch], page_table int32 [batch, most pages of a request].");
  kernel.def(
      "locate_rows",
      [](const AttentionKernel& self, PyWorkspace& workspace, const ArrayLike& positions, const ArrayLike& places,
         const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView to_positions = call.write("positions", positions.object),
                         to_places = call.write("places", places.object);
        call.check_apart();
        const Workspace& plan = call.workspace(workspace);
        call.run([&] { self.locate_rows(plan, to_positions, to_places, call.stream()); });
      },
      nb::arg("workspace"), nb::arg("positions"), nb::arg("places"), nb::arg("stream") = nb::none(),
      "What the plan in the workspace says of its query rows: the position of each, int32 [nnz_qo], and the page "
      "and slot of its own token, int32 [nnz_qo, 2].");

  m.def(
      "build",
      [](const AttentionSpec& spec, const DeviceLike& device, std::optional<Isa> isa) {
        const Device on = device_of(device);
        const WithoutGil free;
        return build(spec, on, BuildOptions{isa});
      },
      nb::arg("spec"), nb::arg("device") = "cpu", nb::kw_only(), nb::arg("isa") = nb::none(),
      "Compiles, or finds in memory, on disk or among the built-in kernels, the kernel of a spec. Raises "
      "Error(unsupported) with required, supported and missing, and Error(no_compiler | compile_failed).");
  m.def(
      "attend",
      [](const AttentionSpec& spec, const ArrayLike& q, const ArrayLike& k, const ArrayLike& v,
         std::optional<ArrayLike> out, std::optional<ArrayLike> lse, bool return_lse, std::optional<float> sm_scale,
         const std::optional<Scalars>& scalars, const std::optional<Tensors>& tensors, std::optional<ArrayLike> k_scale,
         std::optional<ArrayLike> v_scale, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const PyKvCache kv{k, v, std::move(k_scale), std::move(v_scale)};
        Prepared made =
            prepare(call, {spec, q, kv, std::move(out), std::move(lse), return_lse, sm_scale, scalars, tensors});
        const AttentionTensors& all = made.tensors;
        call.run([&] { attend(spec, all.q, all.kv.k, all.kv.v, all.o, all.lse, all, call.stream()); });
        return made.result();
      },
      nb::arg("spec"), nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("out") = nb::none(),
      nb::arg("lse") = nb::none(), nb::kw_only(), nb::arg("return_lse") = false, nb::arg("sm_scale") = nb::none(),
      nb::arg("scalars") = nb::none(), nb::arg("tensors") = nb::none(), nb::arg("k_scale") = nb::none(),
      nb::arg("v_scale") = nb::none(), nb::arg("stream") = nb::none(),
      "One request, everything in one call: q [qo_len, num_qo_heads, head_dim_qk], k and v [kv_len, num_kv_heads, "
      "dim], or [num_kv_heads, kv_len, dim] with Layout.hnd. The spec's kv_form is ragged. Returns as "
      "AttentionKernel.run does.");
}

void define_levels(nb::module_& m) {
  m.def(
      "levels_from_page_tables",
      [](const AttentionKernel& kernel, const PyPlanInput& input) {
        Arguments call;
        PyPlanInput::Views views;
        input.view(call, views);
        return std::make_shared<PySharedLevels>(
            PySharedLevels{call.run([&] { return levels_from_page_tables(kernel, views.input); })});
      },
      nb::arg("kernel"), nb::arg("input"),
      "Levels of leading pages that requests of an input share, where those cost less; empty where none do.");
  m.def(
      "levels_from_prefixes",
      [](const AttentionKernel& kernel, const PyPlanInput& input, const IntsLike& parent, const IntsLike& num_pages,
         const IntsLike& node_of_request) {
        Arguments call;
        PyPlanInput::Views views;
        input.view(call, views);
        const SharedPrefixes prefixes{call.ints("parent", parent), call.ints("num_pages", num_pages),
                                      call.ints("node_of_request", node_of_request)};
        return std::make_shared<PySharedLevels>(
            PySharedLevels{call.run([&] { return levels_from_prefixes(kernel, views.input, prefixes); })});
      },
      nb::arg("kernel"), nb::arg("input"), nb::kw_only(), nb::arg("parent"), nb::arg("num_pages"),
      nb::arg("node_of_request"),
      "The same of prefixes that are known: node n stands for the pages [num_pages[parent[n]], num_pages[n]) of every "
      "request at it or below it; parent -1: none; node_of_request -1: shares nothing. All int32.");
}

void define_prefix_tree(nb::module_& m) {
  m.def(
      "levels_from_prefix_tree",
      [](int page_size, int64_t num_pages, const IntsLike& parent, const IntsLike& page_indptr,
         const IntsLike& page_indices, const IntsLike& last_page_len, const IntsLike& node_of_request,
         const IntsLike& qo_indptr) {
        Arguments call;
        PrefixTree tree;
        tree.page_size = page_size;
        tree.num_pages = num_pages;
        tree.parent = call.ints("parent", parent);
        tree.page_indptr = call.ints("page_indptr", page_indptr);
        tree.page_indices = call.ints("page_indices", page_indices);
        tree.last_page_len = call.ints("last_page_len", last_page_len);
        tree.node_of_request = call.ints("node_of_request", node_of_request);
        const std::span<const int32_t> rows = call.ints("qo_indptr", qo_indptr);
        return std::make_shared<PySharedLevels>(
            PySharedLevels{call.run([&] { return levels_from_prefix_tree(tree, rows); })});
      },
      nb::kw_only(), nb::arg("page_size"), nb::arg("num_pages"), nb::arg("parent"), nb::arg("page_indptr"),
      nb::arg("page_indices"), nb::arg("last_page_len"), nb::arg("node_of_request"), nb::arg("qo_indptr"),
      "A level for each step from the root, whether it pays or not. Node n holds the tokens that follow those of "
      "parent[n] (-1: none; a parent comes before its children): pages page_indices[page_indptr[n]] to [n + 1], the "
      "last of them with last_page_len[n] tokens. A request's keys are the path to its node. All int32.");
}

void define_merge(nb::module_& m) {
  m.def(
      "merge_states",
      [](const ArrayLike& o, const ArrayLike& lse, const std::optional<IntsLike>& indptr, std::optional<ArrayLike> out,
         std::optional<ArrayLike> out_lse, const std::optional<PyStream>& stream) {
        Arguments call(stream_of(stream));
        const TensorView from = call.read("o", o), from_lse = call.read("lse", lse);
        const std::span<const int32_t> rows = call.ints("indptr", indptr);
        const int rank = indptr ? 3 : 4;
        check(from.rank() == rank && from_lse.rank() == rank - 1, ErrorCode::invalid_shape,
              "o: {} with lse: {}; required are {}", from, from_lse,
              indptr ? "[nnz, heads, dim] and [nnz, heads]" : "[states, rows, heads, dim] and [states, rows, heads]");
        const int64_t num_rows = !indptr ? from.shape(1) : std::max<int64_t>(std::ssize(rows) - 1, 0);
        const std::array<int64_t, 3> shape{num_rows, from.shape(rank - 2), from.shape(rank - 1)};
        const nb::object to =
            out ? nb::borrow<nb::any>(out->object) : new_like(o.object, shape, from.dtype(), from.device());
        const nb::object to_lse = out_lse ? nb::borrow<nb::any>(out_lse->object)
                                          : new_like(lse.object, std::span(shape).first(2), DType::fp32, from.device());
        const TensorView o_out = call.write("out", to), lse_out = call.write("out_lse", to_lse);
        call.check_apart();
        call.run([&] {
          if (indptr)
            merge_states(from, from_lse, rows, o_out, lse_out, call.stream());
          else
            merge_states(from, from_lse, o_out, lse_out, call.stream());
        });
        return nb::make_tuple(to, to_lse);
      },
      nb::sig(
          "def merge_states(o: weft._typing.Array, lse: weft._typing.Array, indptr: weft._typing.Ints | None = None, "
          "*, out: weft._typing.Array | None = None, out_lse: weft._typing.Array | None = None, stream: Stream | None "
          "= None) -> tuple[typing.Any, typing.Any]"),
      nb::arg("o"), nb::arg("lse"), nb::arg("indptr") = nb::none(), nb::kw_only(), nb::arg("out") = nb::none(),
      nb::arg("out_lse") = nb::none(), nb::arg("stream") = nb::none(),
      "Merges states of attention over parts of the keys: o [states, rows, heads, dim] (fp32, fp16 or bf16) with lse "
      "fp32 [states, rows, heads], or, with indptr [rows + 1], states [indptr[r], indptr[r + 1]) of o [nnz, heads, "
      "dim] "
      "with lse [nnz, heads] for row r. Returns (out [rows, heads, dim], lse [rows, heads]). The empty state is o = 0, "
      "lse = -inf.");
  m.def(
      "pack_mask",
      [](const IntsLike& mask, const IntsLike& mask_indptr) {
        Arguments call;
        const std::span<const uint8_t> bits = call.bytes("mask", mask);
        const std::span<const int64_t> indptr = call.longs("mask_indptr", mask_indptr);
        std::vector<int64_t> byte_indptr;
        const std::vector<uint8_t> packed = pack_mask(bits, indptr, byte_indptr);
        const std::array<int64_t, 1> shape{std::ssize(packed)};
        PyTensorView made{new_array(shape, DType::uint8, Device::cpu()), nb::none()};
        std::copy(packed.begin(), packed.end(), made.array.view.as<uint8_t>());
        return std::pair(std::move(made), byte_indptr);
      },
      nb::arg("mask"), nb::arg("mask_indptr"),
      "Packs a flat mask (bool or uint8), request r at [mask_indptr[r], mask_indptr[r + 1]), into little-endian bits, "
      "each request starting on a byte. Returns the bytes, with 4 of padding, and where each request starts.");
}

}  // namespace

void define_kernels(nb::module_& m) {
  define_cache(m);
  define_kernel(m);
  define_levels(m);
  define_prefix_tree(m);
  define_merge(m);
}

}  // namespace weft::python
