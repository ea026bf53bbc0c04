#include "attention/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "attention/cuda/kernels/args.h"
#include "attention/cuda/kernels/merge_args.h"
#include "attention/cuda/traits.h"
#include "attention/kernel.h"
#include "base/check.h"

namespace weft::attention {
namespace {

struct CudaCode : Code {
  std::shared_ptr<const cuda::Loaded> kernel;
  int threads = 0;
};

char* at(const Workspace& workspace, int64_t offset) { return static_cast<char*>(workspace.data()) + offset; }

DType dtype_of(Element element) {
  return element == Element::fp16 ? DType::fp16 : element == Element::bf16 ? DType::bf16 : DType::fp32;
}

}  // namespace

std::string CudaBackend::target(const BuildOptions& options, Device device) const {
  check(!options.isa, ErrorCode::invalid_argument, "isa = {}: names an instruction set of CPUs; leave it out for {}",
        to_string(options.isa.value_or(Isa::plain)), to_string(device));
  return runtime_.architecture(device);
}

DType CudaBackend::compute_type(const AttentionSpec& spec, const std::string& target) const {
  return cuda::compute_type(spec, target);
}

Rounding CudaBackend::rounding(const AttentionSpec& spec, DType compute) const { return cuda::rounding(spec, compute); }

KernelTraits CudaBackend::traits(const AttentionSpec& spec, const std::string&, Device device) const {
  return cuda::traits(spec, runtime_.num_multiprocessors(device));
}

std::shared_ptr<const Code> CudaBackend::build(const AttentionSpec& spec, const std::string& target,
                                               Device device) const {
  const cuda::KernelText text = cuda::attend_text(spec);
  const std::string_view variant = spec.variant.name.empty() ? "plain" : std::string_view(spec.variant.name);
  auto code = std::make_shared<CudaCode>();
  code->kernel = runtime_.load(device, fmt::format("attention {} {}", variant, target), "weft_attend", text);
  code->threads = text.threads;
  return code;
}

// The host keeps the header: it is what `run` checks tensors against.
void CudaBackend::write(const Workspace& to, int64_t offset, const void* from, int64_t bytes, Stream stream) const {
  runtime_.write(to.device(), at(to, offset), from, bytes, stream);
  if (offset == 0) to.host_copy() = std::make_shared<PlanHeader>(*static_cast<const PlanHeader*>(from));
}
void CudaBackend::clear(const Workspace& to, int64_t offset, int64_t bytes, Stream stream) const {
  if (bytes > 0) runtime_.clear(to.device(), at(to, offset), bytes, stream);
}
void CudaBackend::read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const {
  if (bytes > 0) runtime_.read(device, from, to, bytes, stream);
}
const PlanHeader* CudaBackend::plan_in(const Workspace& workspace) const {
  return static_cast<const PlanHeader*>(workspace.host_copy().get());
}

void CudaBackend::launch(const AttentionKernel::Impl& kernel, const RunArgs& given, Workspace& workspace,
                         Stream stream) const {
  const PlanHeader& plan = *plan_in(workspace);
  if (plan.items.count == 0) return;
  const auto& code = static_cast<const CudaCode&>(*kernel.code);
  struct {
    cuda::Call call;
    abi::Slot params[cuda::kMaxSlots];
  } args;
  static_cast<RunArgs&>(args.call) = given;
  args.call.plan = static_cast<const PlanHeader*>(workspace.data());
  args.call.mask_error = nullptr;
  const size_t slots = kernel.params.num_slots() * sizeof(abi::Slot);
  std::memcpy(args.params, given.params, slots);
  Workspace error;
  if (kernel.check_masks) {
    error = Workspace(kernel.device, sizeof(unsigned));
    args.call.mask_error = static_cast<unsigned*>(error.data());
  }
  runtime_.launch(*code.kernel, plan.num_workers, code.threads, &args, sizeof args.call + slots, stream);
  if (!kernel.check_masks) return;
  unsigned found = 0;
  runtime_.read(kernel.device, error.data(), &found, sizeof found, stream);
  ensure(found == 0, "WEFT_CHECK: a row sees a key of a tile that was to be left out");
}

void CudaBackend::merge_states(const MergeStatesArgs& given, int64_t rows, int64_t, Device device,
                               Stream stream) const {
  if (rows * given.num_heads == 0) return;
  const cuda::KernelText text = cuda::merge_states_text(dtype_of(given.element), dtype_of(given.o_out.element));
  const auto kernel = runtime_.load(device, "merge_states " + runtime_.architecture(device), "weft_merge_states", text);
  cuda::MergeArgs args{given, rows};
  Workspace indptr;
  if (given.indptr != nullptr) {
    const int64_t bytes = (rows + 1) * static_cast<int64_t>(sizeof(int));
    indptr = Workspace(device, static_cast<size_t>(bytes));
    runtime_.write(device, indptr.data(), given.indptr, bytes, stream);
    args.states.indptr = static_cast<const int*>(indptr.data());
  }
  const int warps = text.threads / 32;
  const int64_t ctas =
      std::min<int64_t>((rows * given.num_heads + warps - 1) / warps, 16 * runtime_.num_multiprocessors(device));
  runtime_.launch(*kernel, static_cast<int>(ctas), text.threads, &args, sizeof args, stream);
  // The indices go with this call: until they were read. cuMemFree waits for what uses the memory.
}

const Backend& cuda_backend() {
  static const CudaBackend backend(cuda::cards());
  return backend;
}

}  // namespace weft::attention
