#include "attention/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <vector>

#include "attention/cuda/kernels/args.h"
#include "attention/cuda/kernels/even_args.h"
#include "attention/cuda/kernels/locate_args.h"
#include "attention/cuda/kernels/merge_args.h"
#include "attention/cuda/maps.h"
#include "attention/cuda/text.h"
#include "attention/cuda/traits.h"
#include "attention/kernel.h"
#include "attention/trace.h"
#include "base/check.h"
#include "jit/cuda/tensor_map.h"

namespace weft::attention {

using weft::cuda::runtime;

// What the host remembers of the plan in a workspace.
struct CudaBackend::PlanOnHost {
  PlanHeader header = {};
  bool made_on_card = false;   // by a kernel
  bool has_set_lists = false;  // kernels set lists of it
  std::unique_ptr<weft::cuda::Runtime::Order> order;
};

namespace {

// The kernels of a spec, each made with the first plan that needs it.
class CudaCode : public Code {
 public:
  CudaCode(const AttentionSpec& spec, const cuda::Architecture& architecture, Device device)
      : spec_(spec),
        architecture_(architecture),
        device_(device),
        forms_(cuda::forms_of(spec, architecture)),
        kernels_(forms_.size()),
        merges_(forms_.size()) {}

  struct Kernel {
    const weft::cuda::LoadedKernel* loaded = nullptr;
    weft::cuda::Grid grid = {};  // of one CTA
  };
  std::span<const cuda::Form> forms() const { return forms_; }
  const Kernel& kernel(const cuda::Form& form) const { return loaded(kernels_, form, cuda::attend_text); }
  // Of a form that leaves its partials.
  const Kernel& merge(const cuda::Form& form) const { return loaded(merges_, form, cuda::merge_apart_text); }
  cuda::ProducerTile tile() const { return cuda::producer_tile(spec_, architecture_); }
  std::string name_of(const cuda::Form& form) const { return cuda::kernel_name(spec_, architecture_, form); }

 private:
  using TextOf = cuda::KernelText (*)(const AttentionSpec&, const cuda::Architecture&, const cuda::Form&);
  const Kernel& loaded(std::vector<Kernel>& kernels, const cuda::Form& form, TextOf text_of) const {
    const std::lock_guard lock(mutex_);
    Kernel& kernel = kernels[static_cast<size_t>(&form - forms_.data())];
    if (kernel.loaded == nullptr) {
      const cuda::KernelText text = text_of(spec_, architecture_, form);
      kernel = {&runtime().load(device_, text), text.grid(1)};
    }
    return kernel;
  }

  AttentionSpec spec_;
  const cuda::Architecture& architecture_;
  Device device_;
  std::vector<cuda::Form> forms_;
  mutable std::mutex mutex_;
  mutable std::vector<Kernel> kernels_, merges_;  // beside forms_
};

// Copies to shared memory take 16 bytes: the first tensor that does not lie so, or null.
const char* not_aligned(const RunArgs& args) {
  const auto fits = [](const void* data, std::initializer_list<long long> strides) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
           std::all_of(strides.begin(), strides.end(), [](long long stride) { return stride % 16 == 0; });
  };
  if (!fits(args.q.data, {args.q.row_stride, args.q.head_stride})) return "q";
  if (!fits(args.k.data, {args.k.page_stride, args.k.token_stride, args.k.head_stride})) return "k";
  if (!fits(args.v.data, {args.v.page_stride, args.v.token_stride, args.v.head_stride})) return "v";
  if (!fits(args.rope.data, {args.rope.page_stride, args.rope.token_stride})) return "kpe";
  return nullptr;
}

// The first that walks the plan's tiles and takes the call's tensors, and where keys and values come in boxes, these.
struct Choice {
  const cuda::Form& form;
  cuda::BoxLayouts boxes = {};
};
Choice form_of(const AttentionKernel::Impl& kernel, const CudaCode& code, const RunArgs& args, const PlanHeader& plan) {
  const char* const tensor = not_aligned(args);
  const std::optional<Loader> named = kernel.spec.loader;
  for (const cuda::Form& form : code.forms()) {
    if ((plan.tile_kinds & ~form.tile_kinds) != 0) continue;
    if (plan.fixed_split_size > 0 && !form.is_alike) continue;
    if (form.best_for != cuda::kAllTileKinds && (plan.tile_kinds & form.best_for) == 0) continue;
    check(form.loader == Loader::elements || tensor == nullptr || !named || named == Loader::elements,
          ErrorCode::invalid_stride,
          "{}: it, or a stride of it, is no multiple of 16 bytes, which loader = {} needs; leave loader out, or copy "
          "the tensor",
          tensor, named ? to_string(*named) : "");
    if (form.loader != Loader::elements && tensor != nullptr) continue;
    if (form.loader != Loader::tma) return {form};
    Choice choice = {form, cuda::box_layouts(kernel.spec, args, plan, code.tile())};
    const std::string why = cuda::why_no_boxes(choice.boxes);
    check(why.empty(), ErrorCode::unsupported, "loader = tma: {}; supported by loader = cp_async, or leave loader out",
          why);
    return choice;
  }
  return {code.forms().back()};
}

// What a launch is given.
class Argument {
 public:
  // call.params: as `params` packs them.
  Argument(const cuda::Call& call, const Params& params) { fill(plain_, call, params); }
  Argument(const cuda::Call& call, const abi::TensorMap& k, const abi::TensorMap& v, const Params& params) {
    fill(boxes_, call, params);
    boxes_.k = k;
    boxes_.v = v;
  }
  const void* data() const { return &plain_; }
  size_t size() const { return size_; }

 private:
  template <class Args>
  void fill(Args& args, const cuda::Call& call, const Params& params) {
    args.call = call;
    abi::Slot* const end = std::copy_n(call.params, params.num_slots(), args.params);
    params.narrow(args.params);
    size_ = static_cast<size_t>(reinterpret_cast<char*>(end) - reinterpret_cast<char*>(&args));
  }

  union {
    cuda::Args<cuda::kMaxSlots> plain_;
    cuda::BoxArgs<cuda::kMaxBoxSlots> boxes_;
  };
  size_t size_ = 0;
};

const cuda::Architecture& architecture_of(Device device) {
  return cuda::find_architecture(runtime().architecture(device));
}

DType dtype_of(Element element) {
  return element == Element::fp16 ? DType::fp16 : element == Element::bf16 ? DType::bf16 : DType::fp32;
}

}  // namespace

std::string CudaBackend::target(const BuildOptions& options, Device device) const {
  check(!options.isa, ErrorCode::invalid_argument, "isa = {}: names an instruction set of CPUs; leave it out for {}",
        to_string(options.isa.value_or(Isa::plain)), to_string(device));
  return runtime().architecture(device);
}

DType CudaBackend::compute_type(const AttentionSpec& spec, const std::string& target) const {
  return cuda::compute_type(spec, cuda::find_architecture(target));
}

Rounding CudaBackend::rounding(const AttentionSpec& spec, DType compute) const { return cuda::rounding(spec, compute); }

KernelTraits CudaBackend::traits(const AttentionSpec& spec, const std::string& target, Device device) const {
  return cuda::traits(spec, cuda::find_architecture(target), runtime().num_multiprocessors(device));
}

std::shared_ptr<const Code> CudaBackend::build(const AttentionSpec& spec, const std::string& target,
                                               Device device) const {
  compute_type(spec, target);  // throws for one that is not there
  auto code = std::make_shared<CudaCode>(spec, cuda::find_architecture(target), device);
  code->kernel(code->forms().front());  // says now what the compiler says of a variant
  return code;
}

CudaBackend::PlanOnHost& CudaBackend::of(const Workspace& workspace) {
  return *static_cast<PlanOnHost*>(workspace.host_copy().get());
}
// Makes it where there is none.
CudaBackend::PlanOnHost& CudaBackend::kept(const Workspace& workspace) const {
  if (workspace.host_copy() == nullptr) {
    auto made = std::make_shared<PlanOnHost>();
    made->order = runtime().make_order(workspace.device());
    workspace.host_copy() = made;
  }
  return of(workspace);
}

void CudaBackend::write(const Workspace& to, std::span<const Bytes> pieces, Stream stream) const {
  PlanOnHost& plan = kept(to);
  plan.order->write(to.data(), pieces, stream);
  plan.header = *static_cast<const PlanHeader*>(pieces[0].data);
  plan.made_on_card = plan.has_set_lists = false;
}

void CudaBackend::expect_changes(const Workspace& workspace) const { of(workspace).has_set_lists = true; }

void CudaBackend::plan_even(const AttentionKernel::Impl& kernel, const PlanHeader& plan, const EvenBatch& batch,
                            Workspace& workspace, Stream stream) const {
  check(plan.num_requests <= cuda::kMostEvenRequests && plan.num_workers <= cuda::kMostEvenWorkers,
        ErrorCode::unsupported,
        "plan_on_device: required {} requests for {} workers; supported {} and {}; missing: room for more; use "
        "AttentionKernel::plan",
        plan.num_requests, plan.num_workers, cuda::kMostEvenRequests, cuda::kMostEvenWorkers);
  const cuda::KernelText text = cuda::plan_even_text(architecture_of(kernel.device));
  const weft::cuda::LoadedKernel& loaded = runtime().load(kernel.device, text);
  const cuda::EvenArgs args{plan, static_cast<char*>(workspace.data()), batch, runtime().clamped_flag(kernel.device)};
  const int64_t units = plan.units.count;
  const int64_t ctas = std::clamp<int64_t>(units / 32, 1, runtime().num_multiprocessors(kernel.device));
  PlanOnHost& of_workspace = kept(workspace);
  of_workspace.order->enqueue(stream,
                              [&] { runtime().launch(loaded, text.grid(static_cast<int>(ctas)), args, stream); });
  of_workspace.header = plan;
  of_workspace.made_on_card = true;
  of_workspace.has_set_lists = false;
}

void CudaBackend::locate_rows(const AttentionKernel::Impl& kernel, const Workspace& workspace, int* positions,
                              int* places, Stream stream) const {
  PlanOnHost& plan = of(workspace);
  check_capture(kernel, plan, stream);
  const auto rows = static_cast<int>(plan.header.num_rows_q);
  if (rows == 0) return;
  const cuda::KernelText text = cuda::locate_rows_text(architecture_of(kernel.device));
  const weft::cuda::LoadedKernel& loaded = runtime().load(kernel.device, text);
  const cuda::LocateArgs args{static_cast<const PlanHeader*>(workspace.data()), positions, places, rows};
  const int ctas = (rows + text.threads - 1) / text.threads;
  plan.order->enqueue(stream, [&] { runtime().launch(loaded, text.grid(ctas), args, stream); });
}

void CudaBackend::read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const {
  if (bytes > 0) runtime().read(device, from, to, bytes, stream);
}
const PlanHeader* CudaBackend::plan_in(const Workspace& workspace) const {
  return workspace.host_copy() == nullptr ? nullptr : &of(workspace).header;
}

void CudaBackend::check_capture(const AttentionKernel::Impl& kernel, const PlanOnHost& plan, Stream stream) const {
  check(
      plan.header.bounds != 0 || !runtime().is_capturing(kernel.device, stream), ErrorCode::invalid_argument,
      "run: its stream is being captured, and the plan was made without bounds: a graph that runs later plans needs a "
      "workspace that holds them; give PlanInput::bounds");
}

void CudaBackend::launch(const AttentionKernel::Impl& kernel, const RunArgs& given, Workspace& workspace,
                         Stream stream) const {
  PlanOnHost& on_host = of(workspace);
  const PlanHeader& plan = on_host.header;
  check_capture(kernel, on_host, stream);
  // Plans of the same bounds may come to be replayed in a graph that this one is captured in.
  if (plan.items.count == 0 && plan.bounds == 0) return;
  const auto& kernels = static_cast<const CudaCode&>(*kernel.code);
  const auto& [form, boxes] = form_of(kernel, kernels, given, plan);
  const CudaCode::Kernel& code = kernels.kernel(form);
  cuda::Call call = {given, static_cast<const PlanHeader*>(workspace.data()), nullptr, on_host.has_set_lists};
  Workspace error;
  if (kernel.check_masks) {
    error = Workspace(kernel.device, sizeof(unsigned));
    call.mask_error = static_cast<unsigned*>(error.data());
  }
  const auto map = [&](const abi::TensorLayout& layout, std::string_view name) {
    return weft::cuda::tensor_map(runtime(), kernel.device, layout, name);
  };
  const Argument args = form.loader == Loader::tma ? Argument(call, map(boxes.k, "k"), map(boxes.v, "v"), kernel.params)
                                                   : Argument(call, kernel.params);
  // A programmatic launch reads items before it waits for the previous kernel: not where that one wrote them.
  weft::cuda::Grid grid = code.grid;
  grid.ctas = plan.num_workers * form.ctas_of_worker;
  grid.programmatic_launch = !on_host.made_on_card;
  const auto run = [&] {
    runtime().launch(*code.loaded, grid, args.data(), args.size(), stream);
    if (!form.merges_apart || (plan.bounds == 0 && !on_host.made_on_card && plan.partials.count == 0)) return;
    const CudaCode::Kernel& merge = kernels.merge(form);
    weft::cuda::Grid all = merge.grid;
    all.ctas = runtime().num_multiprocessors(kernel.device);
    all.programmatic_launch = true;
    runtime().launch(*merge.loaded, all, args.data(), args.size(), stream);
  };
  const auto traced = [&] {
    Trace* const trace = Trace::instance();
    if (trace == nullptr) return run();
    if (const auto seconds = runtime().seconds_of(kernel.device, run, stream))
      trace->add_launch(kernels.name_of(form), kernel.device, plan, *seconds);
  };
  on_host.order->enqueue(stream, std::ref(traced));
  if (!kernel.check_masks) return;
  unsigned found = 0;
  runtime().read(kernel.device, error.data(), &found, sizeof found, stream);
  ensure(found == 0, "WEFT_CHECK: a row sees a key of a tile that was to be left out");
}

void CudaBackend::merge_states(const MergeStatesArgs& given, int64_t rows, int64_t, Device device,
                               Stream stream) const {
  if (rows * given.num_heads == 0) return;
  const cuda::KernelText text =
      cuda::merge_states_text(dtype_of(given.element), dtype_of(given.o_out.element), architecture_of(device));
  const weft::cuda::LoadedKernel& kernel = runtime().load(device, text);
  cuda::MergeArgs args{given, rows};
  Workspace indptr;
  if (given.indptr != nullptr) {
    const int64_t bytes = (rows + 1) * static_cast<int64_t>(sizeof(int));
    indptr = Workspace(device, static_cast<size_t>(bytes));
    runtime().write(device, indptr.data(), std::array{Bytes{given.indptr, bytes}}, stream);
    args.states.indptr = static_cast<const int*>(indptr.data());
  }
  const int warps = text.threads / 32;
  const int64_t ctas =
      std::min<int64_t>((rows * given.num_heads + warps - 1) / warps, 16 * runtime().num_multiprocessors(device));
  runtime().launch(kernel, text.grid(static_cast<int>(ctas)), args, stream);
  // The indices go with this call: until they were read. cuMemFree waits for what uses the memory.
}

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace weft::attention
