// build: spec -> what its device's backend makes of it -> kernel, remembered by spec.
#include "attention/kernel.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "attention/fields.h"
#include "attention/plan/planner.h"
#include "attention/spec.h"
#include "base/check.h"
#include "base/env.h"
#include "base/once_map.h"

namespace weft {
namespace {

// What a kernel is looked for by. Kernels of this process are small and stay.
struct KernelKey {
  AttentionSpec spec;
  Device device;
  const attention::Backend* backend;
  std::string target;
  bool check_masks;  // WEFT_CHECK=1
  friend bool operator==(const KernelKey&, const KernelKey&) = default;
};
// The same without a copy of the spec.
struct KernelQuery {
  const AttentionSpec& spec;
  Device device;
  const attention::Backend* backend;
  const std::string& target;
  bool check_masks;
  operator KernelKey() const { return {spec, device, backend, target, check_masks}; }
  friend bool operator==(const KernelKey& key, const KernelQuery& query) {
    return key.device == query.device && key.backend == query.backend && key.target == query.target &&
           key.check_masks == query.check_masks && key.spec == query.spec;
  }
  // Cheap, not perfect: few other specs share it.
  size_t hash() const {
    size_t hash = std::hash<std::string_view>()(target);
    for_each_field(spec, [&](std::string_view, const auto& field) { hash = (hash ^ mix(field)) * 0x100000001b3ull; });
    return hash;
  }

 private:
  static size_t mix(const Variant& variant) {
    return std::hash<std::string_view>()(variant.name) ^ variant.text.size() * 0x9e3779b97f4a7c15ull;
  }
  template <class T>
  static size_t mix(const std::optional<T>& field) {
    return field ? mix(*field) : ~size_t{0};
  }
  template <class T>
  requires(std::is_enum_v<T> || std::is_integral_v<T>) static size_t mix(T field) { return static_cast<size_t>(field); }
};
using Kernels = OnceMap<KernelKey, std::shared_ptr<const AttentionKernel::Impl>>;

Kernels& kernels() {
  static Kernels instance;
  return instance;
}

std::shared_ptr<const AttentionKernel::Impl> make_kernel(const KernelQuery& query) {
  const AttentionSpec& spec = query.spec;
  validate(spec);
  auto impl = std::make_shared<AttentionKernel::Impl>();
  impl->spec = spec;
  impl->device = query.device;
  impl->backend = query.backend;
  impl->target = query.target;
  impl->compute = query.backend->compute_type(spec, query.target);
  impl->params = Params(spec, query.device);
  impl->code = query.backend->build(spec, query.target, query.device);
  impl->traits = query.backend->traits(spec, query.target, query.device);
  impl->signature = impl->traits.signature();
  if (spec.variant == variants::alibi()) impl->per_head = "slopes";
  if (spec.variant == variants::attention_sink()) impl->per_head = "sinks";
  impl->check_masks = query.check_masks;
  return impl;
}

}  // namespace

AttentionKernel build(const AttentionSpec& spec, Device device, const BuildOptions& options) {
  const attention::Backend& backend = attention::backend_of(device);
  const std::string target = backend.target(options, device);
  const KernelQuery query{spec, device, &backend, target, env::check_masks()};
  AttentionKernel kernel;
  kernel.impl_ = kernels().get(query.hash(), query, [&] { return make_kernel(query); });
  return kernel;
}

const AttentionKernel::Impl& AttentionKernel::impl() const { return held(impl_, "kernel", "build"); }

const AttentionSpec& AttentionKernel::spec() const { return impl().spec; }

Plan AttentionKernel::plan(const PlanInput& input) const { return Planner::plan(impl().traits, input); }

size_t AttentionKernel::workspace_bytes(const PlanBounds& bounds) const {
  return Planner::workspace_bytes(impl().traits, bounds);
}

void AttentionKernel::run(const Plan& plan, const AttentionTensors& tensors, Workspace& workspace,
                          Stream stream) const {
  impl();  // before the workspace is changed
  plan.upload(workspace, stream);
  run(workspace, tensors, stream);
}

}  // namespace weft
