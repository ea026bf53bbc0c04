// The CPU as a backend of attention.
#include "attention/backend.h"

#include <cstring>

#include "attention/cpu/launch.h"
#include "attention/cpu/rounding.h"
#include "attention/cpu/traits.h"
#include "base/check.h"
#include "base/device_checks.h"
#include "device/cpu/cpuid.h"

namespace weft::attention {
namespace {

class CpuBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override {
    if (device != Device::cpu()) refuse_device(name, device);
  }
  int num_workers(Stream stream) const override { return stream.team().num_workers(); }

  std::string target(const BuildOptions& options, Device) const override {
    const Isa isa = options.isa.value_or(current_isa());
    check_supported(isa, "isa");
    return std::string(to_string(isa));
  }
  DType compute_type(const AttentionSpec& spec, const std::string& target) const override {
    check(!spec.loader, ErrorCode::unsupported,
          "loader = {}: required a card's loader, supported on cards, missing on CPUs, which have their own; leave it "
          "out",
          to_string(spec.loader.value_or(Loader::elements)));
    return weft::compute_type(spec, isa_from_string(target));
  }
  Rounding rounding(const AttentionSpec& spec, DType compute) const override { return cpu_rounding(spec, compute); }
  KernelTraits traits(const AttentionSpec& spec, const std::string& target, Device) const override {
    return cpu_traits(spec, isa_from_string(target));
  }
  std::shared_ptr<const Code> build(const AttentionSpec& spec, const std::string& target, Device) const override {
    const Isa isa = isa_from_string(target);
    auto code = std::make_shared<cpu::CpuCode>();
    code->leaf = find_leaf(spec, isa);
    code->core = &cpu::core_for(isa);
    check((code->leaf.leaf->use_softmax != 0) == spec.variant.use_softmax, ErrorCode::invalid_argument,
          "variant '{}': use_softmax is {} in its text and {} in the spec; make them agree", spec.variant.name,
          code->leaf.leaf->use_softmax != 0, spec.variant.use_softmax);
    return code;
  }

  void write(const Workspace& to, std::span<const Bytes> pieces, Stream) const override { copy(pieces, to.data()); }
  void read(Device, const void* from, void* to, int64_t bytes, Stream) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  const PlanHeader* plan_in(const Workspace& workspace) const override {
    return static_cast<const PlanHeader*>(workspace.data());
  }

  void launch(const AttentionKernel::Impl& kernel, const RunArgs& args, Workspace& workspace,
              Stream stream) const override {
    cpu::launch(kernel, args, workspace, stream);
  }
  void merge_states(const MergeStatesArgs& args, int64_t rows, int64_t floats, Device, Stream stream) const override {
    cpu::merge_states(args, rows, floats, stream);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace weft::attention
