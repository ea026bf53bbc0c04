#include "tests/attention/kernels/target.h"

#include "tests/support/sanitizers.h"

namespace weft::testing {

std::span<const Target* const> targets_of_case(unsigned index) {
  return kUnderSanitizer ? targets().subspan(index % targets().size(), 1) : targets();
}

AttentionKernel build_on(const Target& target, const AttentionSpec& spec) {
  return build(spec, target.device(), target.options());
}

void run_on(const Target& target, const AttentionKernel& kernel, const Plan& plan, const AttentionTensors& tensors) {
  Workspace workspace(target.device(), plan.workspace_bytes());
  target.poison(workspace);
  WorkerTeam team(2);
  const Placed placed(target, tensors);
  kernel.run(plan, placed.tensors(), workspace, target.stream(team));
  placed.fetch();
}

Placed::Placed(const Target& target, const AttentionTensors& host) : target_(target), tensors_(host) {
  for (TensorView* view : {&tensors_.q, &tensors_.kv.k, &tensors_.kv.v, &tensors_.kv.k_scale, &tensors_.kv.v_scale})
    copies_.push_back(place(*view));
  for (TensorArg& arg : tensors_.tensors) copies_.push_back(place(arg.value));
  for (TensorView* view : {&tensors_.o, &tensors_.lse}) outputs_.push_back(place(*view));
}

// All from the first element to the last, gaps too.
Placed::Copy Placed::place(TensorView& view) {
  if (!view) return {};
  int64_t elements = view.size() > 0 ? 1 : 0;
  for (int axis = 0; axis < view.rank() && elements > 0; ++axis) elements += (view.shape(axis) - 1) * view.stride(axis);
  const auto bytes = static_cast<size_t>((elements * bits_of(view.dtype()) + 7) / 8);
  const Copy copy{view.data(), target_.place(view.data(), bytes), bytes};
  const std::vector<int64_t> shape(view.shape().begin(), view.shape().end());
  const std::vector<int64_t> strides(view.strides().begin(), view.strides().end());
  view = TensorView(copy.placed, view.dtype(), shape, strides, target_.device());
  return copy;
}

Placed::~Placed() {
  for (const std::vector<Copy>* copies : {&copies_, &outputs_})
    for (const Copy& copy : *copies)
      if (copy.placed != nullptr) target_.release(copy.placed, copy.bytes);
}

void Placed::fetch() const {
  for (const Copy& copy : outputs_) target_.fetch(copy.host, copy.placed, copy.bytes);
}

}  // namespace weft::testing
